"""Windows captured once for a cache and played again give the same logits, and hold no memory longer than their cache."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer.llama.cuda_graphs import GraphLlama
from tests.infer.llamas import FAMILIES, Rows, compute_again, made, random_model, tokens


def test_captured_windows_follow_a_cache_that_grows_and_serves_again() -> None:
    source = random_model(FAMILIES["llama"]())
    model = made(source, "graphs")
    captured = []
    graphs = model._forward
    assert isinstance(graphs, GraphLlama)
    graphs._capture = lambda compute: captured.append(compute) or compute_again(compute)
    rows = Rows(model, source, 1)
    rows.forward(500, [0])  # the buffers hold 512
    for _ in range(4):
        rows.forward(5, [0], crop=[1])
        rows.forward(1, [0])
    assert len(captured) == 4  # two widths, before and after it grew
    model.recycle(rows.cache)
    again = Rows(model, source, 1)
    assert again.cache is rows.cache
    again.forward(5, [0], crop=[5])
    again.forward(1, [0])
    assert len(captured) == 4
    others = Rows(model, source, 1)
    assert others.cache is not rows.cache


def test_a_spare_cache_is_clean() -> None:
    model = made(random_model(FAMILIES["llama"]()), "graphs")
    cache = model.new_cache(1)
    model.forward(tokens(1, 600), cache)
    model.recycle(cache)
    again = model.new_cache(1)
    assert again is cache
    assert again.get_num_tokens() == 0
    assert all(not state.keys.any() and not state.values.any() for state in again.buffers())


def test_a_large_cache_is_not_kept_nor_what_was_captured_for_it() -> None:
    source = random_model(FAMILIES["llama"]())
    model = made(source, "graphs")
    rows = Rows(model, source, 1)
    rows.cache.reserve(1500)
    for _ in range(3):
        rows.forward(1, [0])
    assert model._forward._caches[rows.cache].captured
    model.recycle(rows.cache)
    buffer = weakref.ref(rows.cache.buffers()[0].keys)
    del rows
    gc.collect()
    assert buffer() is None


def test_where_memory_is_short_nothing_more_is_captured_for_a_cache() -> None:
    source = random_model(FAMILIES["llama"]())
    model = made(source, "graphs")
    tried = []

    def short(compute: Callable[[], torch.Tensor]) -> Any:
        tried.append(compute)
        raise torch.OutOfMemoryError

    assert isinstance(model._forward, GraphLlama)
    model._forward._capture = short
    rows = Rows(model, source, 1)
    for _ in range(4):
        rows.forward(3, [0], crop=[1])
    assert len(tried) == 1
    model._forward._capture = compute_again
    others = Rows(model, source, 1)
    for _ in range(3):
        others.forward(3, [0], crop=[1])
    assert model._forward._caches[others.cache].captured


def test_a_forward_that_cannot_be_captured_runs_without(caplog: pytest.LogCaptureFixture) -> None:
    source = random_model(FAMILIES["llama"]())
    model = made(source, "graphs")
    tried = []

    def refuse(compute: Callable[[], torch.Tensor]) -> Any:
        tried.append(compute)
        raise RuntimeError("operation not permitted when stream is capturing")

    assert isinstance(model._forward, GraphLlama)
    model._forward._capture = refuse
    rows = Rows(model, source, 2)
    for _ in range(4):
        rows.forward(3, [0, 1], crop=[1, 2])
    assert len(tried) == 1
    assert "CUDA graphs are not used" in caplog.text


def test_decoding_with_captured_windows_gives_the_same_tokens() -> None:
    pair = [random_model(FAMILIES["llama"](), seed) for seed in (0, 1)]
    plain, graphs = (
        SpeculativeDecoder(ModelPair(*(made(model, executor) for model in pair))) for executor in ("torch", "graphs")
    )
    params = [SamplingParams(max_tokens=8, seed=seed, temperature=0.7, ignore_eos=True) for seed in range(3)]
    prompts = [[5, 6, 7], [8, 9], [10]]
    expected = plain.generate(prompts, params, num_draft_tokens=3)
    for _ in range(2):  # the second time with what the first has captured
        got = graphs.generate(prompts, params, num_draft_tokens=3)
        assert [result.token_ids for result in got] == [result.token_ids for result in expected]
        alone = [graphs.generate(prompt, one, num_draft_tokens=3) for prompt, one in zip(prompts, params, strict=True)]
        assert [result.token_ids for result in alone] == [result.token_ids for result in expected]


def test_captured_windows_give_hidden_states_with_their_logits() -> None:
    source = random_model(FAMILIES["llama"]())
    graphs, lean = made(source, "graphs"), made(source, "torch")
    captured: list[object] = []
    assert isinstance(graphs._forward, GraphLlama)
    graphs._forward._capture = lambda compute: (captured.append(compute), compute_again(compute))[1]
    caches = [model.new_cache(2) for model in (graphs, lean)]
    for number, layers in enumerate([(3, 1), (3, 1), (), (3, 1), (), (0,), (3, 1), (0,)]):
        query = tokens(2, 4)
        found, expected = (
            model.forward(query, cache, layers=layers) for model, cache in zip((graphs, lean), caches, strict=True)
        )
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        for cache in caches:
            cache.crop([number % 4, 1])
    assert len(captured) == 3  # once for each choice of layers
    states = graphs.forward(tokens(2, 4), caches[0], layers=(3, 1))[1].clone()
    kept = states.clone()
    graphs.forward(tokens(2, 4), caches[0], layers=(3, 1))
    torch.testing.assert_close(states, kept, rtol=0, atol=0)  # later windows write elsewhere


def test_where_not_all_logits_are_wanted_nothing_is_captured() -> None:
    graphs = made(random_model(FAMILIES["llama"]()), "graphs")
    cache = graphs.new_cache(1)
    for _ in range(3):
        logits, features = graphs.forward(tokens(1, 5), cache, layers=(1,), num_logits=1)
        assert logits.shape[1] == 1
        assert features.shape == (1, 5, 64)
    assert not any(windows.captured for windows in graphs._forward._caches.values())
