"""Windows captured once for a cache and played again give the same logits, and hold no memory longer than their cache."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from tests.infer.llamas import FAMILIES, Rows, compute_again, made, random_model, tokens

SOURCE = random_model(FAMILIES["llama"]())


class Captures:
    """A model whose windows are captured; `tried` counts the captures, which raise `error` if there is one."""

    def __init__(self) -> None:
        self.model = made(SOURCE, "graphs")
        self.error: Exception | None = None
        self.tried = 0
        self.model._forward.graphs._capture = self._capture

    def _capture(self, compute: Callable[[], torch.Tensor]) -> Any:
        self.tried += 1
        if self.error is not None:
            raise self.error
        return compute_again(compute)

    def rows(self, count: int = 1) -> Rows:
        return Rows(self.model, SOURCE, count)

    def held(self, cache: Any) -> bool:
        """Whether something is captured for a cache."""
        return bool(self.model._forward.graphs._caches[cache].captured)


@pytest.fixture
def graphs() -> Captures:
    return Captures()


def test_captured_windows_follow_a_cache_that_grows_and_serves_again_clean(graphs: Captures) -> None:
    rows = graphs.rows()
    rows.forward(500, [0])  # the buffers hold 512
    for _ in range(4):
        rows.forward(5, [0], crop=[1])
        rows.forward(1, [0])
    assert graphs.tried == 4  # two widths, before and after it grew
    graphs.model.recycle(rows.cache)
    again = graphs.rows()
    assert again.cache is rows.cache
    assert again.cache.get_num_tokens() == 0
    assert all(not state.keys.any() and not state.values.any() for state in again.cache.buffers())
    again.forward(5, [0], crop=[5])
    again.forward(1, [0])
    assert graphs.tried == 4
    assert graphs.rows().cache is not rows.cache


def test_a_large_cache_is_not_kept_nor_what_was_captured_for_it(graphs: Captures) -> None:
    rows = graphs.rows()
    rows.cache.reserve(1500)
    for _ in range(3):
        rows.forward(1, [0])
    assert graphs.held(rows.cache)
    graphs.model.recycle(rows.cache)
    buffer = weakref.ref(rows.cache.buffers()[0].keys)
    del rows
    gc.collect()
    assert buffer() is None


@pytest.mark.parametrize("error", [torch.OutOfMemoryError(), RuntimeError("operation not permitted when stream is capturing")])
def test_where_a_capture_fails_decoding_goes_on_without(graphs: Captures, error: Exception, caplog: Any) -> None:
    """Where memory is short for this cache only, else for good, with a warning."""
    graphs.error = error
    rows = graphs.rows(2)
    for _ in range(4):
        rows.forward(3, [0, 1], crop=[1, 2])
    assert graphs.tried == 1
    graphs.error = None
    others = graphs.rows()
    for _ in range(3):
        others.forward(3, [0], crop=[1])
    lasting = "CUDA graphs are not used" in caplog.text
    assert lasting == (not isinstance(error, torch.OutOfMemoryError))
    assert lasting or graphs.held(others.cache)
    assert graphs.tried == (1 if lasting else 2)


def test_decoding_with_captured_windows_gives_the_same_tokens() -> None:
    draft = random_model(FAMILIES["llama"](), 1)
    plain, graphs = (
        SpeculativeDecoder(ModelPair(*(made(model, executor) for model in (SOURCE, draft)))) for executor in ("torch", "graphs")
    )
    params = [SamplingParams(max_tokens=6, seed=seed, temperature=0.7, ignore_eos=True) for seed in range(3)]
    prompts = [[5, 6, 7], [8, 9], [10]]
    expected = [result.token_ids for result in plain.generate(prompts, params, num_draft_tokens=3)]
    for _ in range(2):  # the second time with what the first has captured
        assert [result.token_ids for result in graphs.generate(prompts, params, num_draft_tokens=3)] == expected
        alone = [graphs.generate(prompt, one, num_draft_tokens=3) for prompt, one in zip(prompts, params, strict=True)]
        assert [result.token_ids for result in alone] == expected


def test_captured_windows_give_hidden_states_with_their_logits(graphs: Captures) -> None:
    models = graphs.model, made(SOURCE, "torch")
    caches = [model.new_cache(2) for model in models]
    for number, layers in enumerate([(3, 1), (3, 1), (), (3, 1), (), (0,), (3, 1), (0,)]):
        query = tokens(2, 4)
        found, expected = (model.forward(query, cache, layers=layers) for model, cache in zip(models, caches, strict=True))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        for cache in caches:
            cache.crop([number % 4, 1])
    assert graphs.tried == 3  # once for each choice of layers


def test_where_not_all_logits_are_wanted_nothing_is_captured(graphs: Captures) -> None:
    cache = graphs.model.new_cache(1)
    for _ in range(3):
        logits, features = graphs.model.forward(tokens(1, 5), cache, layers=(1,), num_logits=1)
        assert logits.shape[1] == 1
        assert features.shape == (1, 5, 64)
    assert graphs.tried == 0
