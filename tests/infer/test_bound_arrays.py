"""What a forward is given and gives back is copied from and to arrays that stay bound, or is bound itself where it is large."""

import pytest
import torch

from naive_speculate.infer import LanguageModel
from naive_speculate.infer.llama import onnx
from tests.infer.llamas import FAMILIES, VOCAB, made, random_model
from tests.infer.test_draft_window import executed

QUERIES = [torch.arange(start, start + count)[None] for start, count in ((2, 9), (20, 1), (30, 3), (40, 1), (50, 3), (60, 9))]


def forwards(model: LanguageModel) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Logits and features of queries one after another."""
    cache = model.new_cache(1)
    return [model.forward(query, cache, layers=(1, 2)) for query in QUERIES]


@pytest.mark.parametrize("held", [0, 4 * VOCAB, 2**20])  # bytes: nothing, the logits of one token, all
def test_forwards_of_changing_lengths_give_what_torch_gives(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "_HELD_BYTES", held)
    source = random_model(FAMILIES["llama"]())
    found, expected = (forwards(made(source, way)) for way in ("onnx", "torch"))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_what_was_returned_is_the_callers_own() -> None:
    model = made(random_model(FAMILIES["llama"]()), "onnx")
    cache = model.new_cache(1)
    before = model.forward(QUERIES[2], cache, layers=(1,))
    kept = [tensor.clone() for tensor in before]
    after = model.forward(QUERIES[4], cache, layers=(1,))
    for tensor, copy, other in zip(before, kept, after, strict=True):
        assert torch.equal(tensor, copy)
        assert not torch.equal(tensor, other)


def test_windows_that_were_returned_are_the_callers_own() -> None:
    model = executed(0)
    cache = model.new_cache(1)
    model.forward(torch.tensor([[1]]), cache)
    drafts, probs = model.draft_window(torch.tensor([[2]]), cache.all_rows(), 3, model.vocab_size, with_probs=True)
    kept = drafts.clone(), probs.clone()
    later = model.draft_window(torch.tensor([[3]]), cache.all_rows(), 3, model.vocab_size, with_probs=True)
    assert torch.equal(drafts, kept[0])
    assert torch.equal(probs, kept[1])
    assert not torch.equal(later[1], probs)
