"""Contracts of the protocols: every implementation passes the same tests."""

import pytest
import torch
from transformers import AutoModelForCausalLM, MambaConfig, MambaForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from naive_speculate.infer import (
    BasicInferencer,
    DynamicKVCache,
    KVState,
    RaggedKVCache,
    SampleStrategy,
    TransformersLanguageModel,
)
from naive_speculate.speculate.drafter import Drafter
from tests.models.llama.llamas import made as made_by
from tests.tiny import shape

COMMON = shape(max_position_embeddings=64, initializer_range=0.2)
FAMILIES = {
    "llama": COMMON,
    "qwen3": COMMON | {"head_dim": 8},
    "gemma2": COMMON | {"head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 8},
}


def build(family: str, **more):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(
        CONFIG_MAPPING[family](**FAMILIES[family] | more)
    ).eval()


def made(name: str, **more):
    """Other families: `test_architectures.py` for transformers, `test_llama.py` for ours."""
    family, way = name.split()
    return made_by(build(family, **more), way)


@pytest.fixture(params=["llama transformers", "llama torch", "llama onnx"], scope="module")
def named_model(request):
    return request.param, made(request.param)


@pytest.fixture
def model(named_model):
    return named_model[1]


CACHES = {
    "dynamic": DynamicKVCache,
    "ragged": lambda: RaggedKVCache(2),
    "rows": lambda: RaggedKVCache(5).rows([3, 1]),
}


@pytest.fixture(params=CACHES)
def cache(request):
    return CACHES[request.param]()


def states(num_tokens: int, seed: int = 0, layers: int = 2) -> list[KVState]:
    generator = torch.Generator().manual_seed(seed)
    return [
        KVState(*torch.randn(2, 2, 3, num_tokens, 4, generator=generator)) for _ in range(layers)
    ]


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(2, 97, shape, generator=torch.Generator().manual_seed(seed))


# KVCache


def test_updates_are_kept_in_order_and_a_crop_takes_tokens_from_the_end(cache):
    assert cache.get_kv_states() == []
    first, second, third = states(3, 1), states(200, 2), states(2, 3)
    cache.update(first)
    cache.update(second)
    assert cache.get_num_tokens() == 203
    cache.crop(198)
    cache.crop(0)
    cache.update(third)
    assert cache.get_num_tokens() == 7
    for found, *parts in zip(cache.get_kv_states(), first, second, third, strict=True):
        for kind in ("keys", "values"):
            whole = torch.cat(
                [
                    getattr(part, kind)[:, :, :size]
                    for part, size in zip(parts, (3, 2, 2), strict=True)
                ],
                dim=2,
            )
            torch.testing.assert_close(getattr(found, kind), whole)


def test_a_crop_outside_the_cache_and_an_update_with_other_layers_are_refused(cache):
    assert cache.get_num_tokens() == 0
    cache.update(states(3))
    for count, message in (
        (-1, "must not be negative, got -1"),
        (4, "is 4, but the cache holds only 3"),
    ):
        with pytest.raises(ValueError, match=message):
            cache.crop(count)
    with pytest.raises(ValueError, match="3 layers, the cache has 2"):
        cache.update(states(1, layers=3))
    assert cache.get_num_tokens() == 3


# LanguageModel


def test_cached_steps_with_crops_equal_an_uncached_forward(named_model):
    name, model = named_model
    ids = tokens(1, 30)
    with torch.no_grad():
        expected = build(name.split()[0])(ids).logits
    for cache in (DynamicKVCache(), model.new_cache(1)):
        generator, place, found = torch.Generator().manual_seed(3), 0, []
        while place < 30:
            size = int(torch.randint(1, 8, (1,), generator=generator))
            chunk = ids[:, place : place + size]
            model.forward(tokens(1, chunk.shape[1], seed=place), cache)  # a refused window
            cache.crop(chunk.shape[1])
            found.append(model.forward(chunk, cache))
            place += size
        assert cache.get_num_tokens() == 30
        torch.testing.assert_close(torch.cat(found, dim=1), expected, atol=1e-4, rtol=1e-4)


def test_logits_are_those_of_every_or_of_the_last_query_positions_and_a_malformed_query_is_refused(
    model,
):
    ids = tokens(2, 7)
    every = model.forward(ids, model.new_cache(2))
    assert every.shape == (2, 7, 97)
    assert every.is_floating_point()
    torch.testing.assert_close(
        model.forward(ids, model.new_cache(2), num_logits=2), every[:, -2:], atol=1e-5, rtol=1e-5
    )
    for query in (tokens(3), tokens(1, 0), tokens(3, 2)):
        with pytest.raises(ValueError, match="query_token_ids"):
            model.forward(query, model.new_cache(1))
    assert (model.eos_token_id, tuple(model.eos_token_ids)) == (1, (1,))


@pytest.mark.parametrize("name", ["llama transformers", "llama torch", "llama onnx"])
def test_eos_lists_are_known_and_a_missing_eos_is_an_error(name):
    assert tuple(made(name, eos_token_id=[3, 7]).eos_token_ids) == (3, 7)
    without = made(name, eos_token_id=None)
    with pytest.raises(ValueError, match="eos_token_id"):
        _ = without.eos_token_id


def test_a_recurrent_model_is_refused_where_its_state_would_have_to_be_rolled_back():
    with pytest.raises(
        ValueError,
        match=r"MambaForCausalLM \(mamba\) has a recurrent state: it cannot be rolled back",
    ):
        TransformersLanguageModel(
            MambaForCausalLM(MambaConfig(vocab_size=97, hidden_size=16, num_hidden_layers=1))
        )


# Inferencer and Drafter


@pytest.fixture(scope="module")
def inferencer():
    return BasicInferencer(TransformersLanguageModel(build("llama")))


def greedy_continuation(model, prompt: torch.Tensor, count: int) -> list[int]:
    ids = prompt
    for _ in range(count):
        ids = torch.cat([ids, model.forward(ids, DynamicKVCache())[:, -1:].argmax(-1)], dim=1)
    return ids[0, prompt.shape[1] :].tolist()


def test_prefill_gives_one_token_and_all_logits(inferencer):
    cache, query = DynamicKVCache(), tokens(2, 5)
    out = inferencer.prefill(query, cache, SampleStrategy.GREEDY)
    assert out.token_ids.shape == (2, 1)
    assert out.token_ids.dtype == torch.int64
    assert out.token_logits.shape == (2, 5, 97)
    assert out.token_ids[:, 0].tolist() == out.token_logits[:, -1].argmax(-1).tolist()
    assert cache.get_num_tokens() == 5


def test_decode_generates_up_to_its_limit_and_keeps_the_cache_one_token_short(inferencer):
    prompt, cache = tokens(1, 5, seed=4), DynamicKVCache()
    first = inferencer.prefill(prompt, cache, "greedy").token_ids
    out = inferencer.decode(first, cache, 6, SampleStrategy.GREEDY)
    expected = greedy_continuation(inferencer.language_model, prompt, 7)
    stop = expected.index(1) + 1 if 1 in expected else 7
    assert [*first[0].tolist(), *out.token_ids[0].tolist()] == expected[:stop]
    assert out.token_logits.shape == (1, out.token_ids.shape[1], 97)
    assert cache.get_num_tokens() == 5 + out.token_ids.shape[1]


@pytest.mark.parametrize("others", [[], [96]])
def test_decode_stops_at_an_end_of_sequence_token(inferencer, monkeypatch, others):
    model, prompt, cache = inferencer.language_model, tokens(1, 5, seed=4), DynamicKVCache()
    expected = greedy_continuation(model, prompt, 4)
    monkeypatch.setattr(model.model.generation_config, "eos_token_id", [*others, expected[3]])
    ends = BasicInferencer(model)
    first = ends.prefill(prompt, cache, SampleStrategy.GREEDY).token_ids
    out = ends.decode(first, cache, 50, SampleStrategy.GREEDY)
    assert [*first[0].tolist(), *out.token_ids[0].tolist()] == expected[
        : expected.index(expected[3]) + 1
    ]


def test_random_sampling_draws_from_the_softmax(inferencer):
    torch.manual_seed(0)
    query = tokens(1, 1).expand(4000, 1)
    out = inferencer.prefill(query, DynamicKVCache(), SampleStrategy.RANDOM)
    probs = torch.softmax(out.token_logits[0, -1], -1)
    seen = torch.bincount(out.token_ids[:, 0], minlength=97) / 4000
    assert (seen - probs).abs().sum() / 2 < 0.1


@pytest.mark.parametrize("num_query_tokens", [1, 4])
def test_the_drafter_drafts_what_greedy_decoding_gives(inferencer, num_query_tokens):
    prompt, cache = tokens(1, num_query_tokens, seed=6), DynamicKVCache()
    out = Drafter(inferencer).draft(prompt, cache, 5, SampleStrategy.GREEDY)
    expected = greedy_continuation(inferencer.language_model, prompt, 5)
    drafted = out.token_ids[0].tolist()
    assert drafted == expected[: len(drafted)]
    assert len(drafted) == 5 or drafted[-1] == 1
    assert out.token_logits.shape == (1, len(drafted), 97)
    assert out.token_logits.argmax(-1)[0].tolist() == drafted
    assert cache.get_num_tokens() == num_query_tokens + len(drafted) - 1


@pytest.mark.parametrize(
    ("method", "query", "options", "message"),
    [
        ("decode", tokens(1, 1), (0, "greedy"), "max_new_tokens must be positive, got 0"),
        ("decode", tokens(1, 1), (-3, "greedy"), "max_new_tokens must be positive, got -3"),
        ("prefill", tokens(1, 2), ("luck",), "sample_strategy"),
        ("draft", tokens(1, 2), (0, "greedy"), "num_draft_tokens must be positive, got 0"),
        ("draft", tokens(1, 2), (-2, "greedy"), "num_draft_tokens must be positive, got -2"),
        ("draft", tokens(1, 0), (3, "greedy"), "query_token_ids must have shape"),
    ],
)
def test_bad_arguments_are_refused_by_name(inferencer, method, query, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(Drafter(inferencer) if method == "draft" else inferencer, method)(
            query, DynamicKVCache(), *options
        )
