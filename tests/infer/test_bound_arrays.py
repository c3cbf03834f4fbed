"""The arrays of a forward are its caller's own, whatever later forwards compute."""

import numpy as np
import pytest
import torch

from naive_speculate.infer import LanguageModel
from naive_speculate.sampling.random_source import num_noises
from tests.infer.llamas import FAMILIES, made, random_model
from tests.infer.test_draft_window import executed

QUERIES = [torch.arange(start, start + count)[None] for start, count in ((2, 9), (20, 1), (30, 3), (40, 1), (50, 3), (60, 9))]


def forwards(model: LanguageModel) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Logits and features of queries one after another."""
    cache = model.new_cache(1)
    return [model.forward(query, cache, layers=(1, 2)) for query in QUERIES]


def test_forwards_of_changing_lengths_give_what_torch_gives() -> None:
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
    assert np.array_equal(drafts, kept[0])
    assert np.array_equal(probs, kept[1])
    assert not np.array_equal(later[1], probs)


def test_rows_that_are_no_neighbours_get_their_own_results() -> None:
    model = made(random_model(FAMILIES["llama"]()), "onnx")
    expected = forwards(model)
    cache = model.new_cache(3)
    for query, alone in zip(QUERIES, expected, strict=True):
        found = model.forward(query.repeat(2, 1), cache.rows([2, 0]), layers=(1, 2))
        for one, other in zip(found, alone, strict=True):
            torch.testing.assert_close(one, other.repeat(2, 1, 1), atol=1e-4, rtol=1e-4)


def test_a_call_with_numbers_of_another_type_does_not_spoil_the_next() -> None:
    model = executed(0)
    cache, token = model.new_cache(1), torch.tensor([[1]])
    model.forward(token, cache)

    def draft(dtype: torch.dtype) -> torch.Tensor:
        race = torch.ones(1, 1, dtype=dtype), torch.ones(1, 3, num_noises(model.vocab_size), dtype=dtype)
        before = list(cache.lengths)
        drafts, _ = model.draft_window(token, cache.all_rows(), 3, model.vocab_size, race)
        cache.keep(0, before[0])
        return drafts

    expected = draft(torch.float32)
    with pytest.raises(Exception, match="data type"):
        draft(torch.float64)
    assert np.array_equal(draft(torch.float32), expected)
