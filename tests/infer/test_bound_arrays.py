"""The arrays of a forward are its caller's own, whatever later forwards compute."""

import pytest
import torch

from naive_speculate.infer import LanguageModel
from tests.infer.llamas import FAMILIES, made, random_model

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


def test_rows_that_are_no_neighbours_get_their_own_results() -> None:
    model = made(random_model(FAMILIES["llama"]()), "onnx")
    expected = forwards(model)
    cache = model.new_cache(3)
    for query, alone in zip(QUERIES, expected, strict=True):
        found = model.forward(query.repeat(2, 1), cache.rows([2, 0]), layers=(1, 2))
        for one, other in zip(found, alone, strict=True):
            torch.testing.assert_close(one, other.repeat(2, 1, 1), atol=1e-4, rtol=1e-4)


def test_tokens_of_another_type_are_refused_and_not_read_as_if_they_were_int64() -> None:
    model = made(random_model(FAMILIES["llama"]()), "onnx")
    cache, tokens = model.new_cache(1), torch.tensor([[7]])
    model.forward(tokens, cache)
    for others in (tokens.view(torch.int32)[:, :1], torch.tensor([[7]], dtype=torch.int16)):  # the first lies where those lay
        with pytest.raises(ValueError, match=r"query_token_ids must be int64, got torch\.int"):
            model.forward(others, cache)
