"""Architectures of transformers through caches and batches: their own logits, or a refusal that
says why."""

from typing import Any

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import DynamicKVCache, TransformersLanguageModel
from tests.models.llama.llamas import final_norm, own_features, random_model
from tests.tiny import noised, shape

SHAPE = shape()
SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
EXPERTS = {"n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}
EXPERTS |= {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
FOUR: dict[str, Any] = {
    "vocab_size": 97,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 80,
}
BART: dict[str, Any] = {
    "vocab_size": 97,
    "d_model": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
}
LONG_FROM = 24
NTK = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
NEO: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 4,
    "max_position_embeddings": 80,
}

# Architecture, configuration, implementation of attention. The second group counts positions in its
# cache or builds biases.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "Qwen2 without a window up to its last layer": (
        "Qwen2",
        {**SHAPE, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3},
        None,
    ),
    "Dots1 without a window": (
        "Dots1",
        {**SHAPE, **EXPERTS, "head_dim": 8, "sliding_window": 8},
        None,
    ),
    "Qwen2 with windows": (
        "Qwen2",
        {**SHAPE, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        None,
    ),
    "Mistral": ("Mistral", {**SHAPE, "sliding_window": 8}, None),
    "Qwen3": ("Qwen3", {**SHAPE, "head_dim": 8}, None),
    "Gemma": ("Gemma", {**SHAPE, "head_dim": 8}, None),
    "Gemma2": (
        "Gemma2",
        {**SHAPE, "head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 8},
        None,
    ),
    "Gemma3": (
        "Gemma3Text",
        {**SHAPE, "head_dim": 8, "sliding_window": 5, "layer_types": MIXED},
        None,
    ),
    "GPT2": ("GPT2", FOUR, None),
    "GptOss": (
        "GptOss",
        {
            **SHAPE,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "head_dim": 8,
            "sliding_window": 8,
        },
        None,
    ),
    "dynamic NTK": ("Llama", {**SHAPE, "rope_parameters": NTK}, None),
    "GPTJ": ("GPTJ", {**FOUR, "rotary_dim": 8}, None),
    "CodeGen": ("CodeGen", {**FOUR, "rotary_dim": 8}, None),
    "Mpt": ("Mpt", {"vocab_size": 97, "d_model": 32, "n_layers": 2, "n_heads": 4}, None),
    "OPT": (
        "OPT",
        {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 80},
        None,
    ),
    "Bart": ("Bart", {**BART, "max_position_embeddings": 80, "is_encoder_decoder": False}, None),
    "GPTNeo": (
        "GPTNeo",
        {**NEO, "attention_types": [[["global", "local"], 1]], "window_size": 8},
        "eager",
    ),
    "Roberta": (
        "Roberta",
        {**SMALL, "intermediate_size": 64, "max_position_embeddings": 80, "is_decoder": True},
        None,
    ),
    "Bloom": ("Bloom", {"vocab_size": 97, "hidden_size": 32, "n_layer": 2, "n_head": 4}, None),
    "Falcon with ALiBi": ("Falcon", {**SMALL, "alibi": True}, None),
}


def built(
    architecture: str, config: dict[str, Any], attention: str | None = None
) -> PreTrainedModel:
    return random_model(
        getattr(transformers, f"{architecture}Config")(**config), attention=attention
    )


def tokens(count: int, seed: int) -> torch.Tensor:
    return torch.randint(2, 97, (1, count), generator=torch.Generator().manual_seed(seed))


def num_layers(source: PreTrainedModel) -> int:
    with torch.no_grad():
        return (
            len(
                source(
                    input_ids=tokens(2, 1), use_cache=False, output_hidden_states=True
                ).hidden_states
            )
            - 1
        )


def own_logits(model: PreTrainedModel, token_ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=token_ids, use_cache=False).logits


@pytest.fixture(scope="module", params=ARCHITECTURES)
def source(request):
    return built(*ARCHITECTURES[request.param])


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_sequence_gets_the_models_own_logits_and_hidden_states(source):
    model, ids, last = TransformersLanguageModel(source), tokens(60, seed=1), num_layers(source)
    layers = (last - 1, 0, last if final_norm(source) is not None else 1)
    expected, states = own_logits(source, ids), own_features(source, ids, layers)
    for cache in (DynamicKVCache(), model.new_cache(1)):
        first = model.forward(ids[:, :30], cache, layers=layers)
        model.forward(tokens(5, seed=2), cache)
        cache.crop(5)
        rest = model.forward(ids[:, 30:], cache, layers=layers)
        logits, features = (torch.cat(parts, dim=1) for parts in zip(first, rest, strict=True))
        close(logits, expected)
        close(features, states)


def test_a_row_with_a_longer_one_gets_the_models_own_logits_and_hidden_states(source):
    model, long, short = TransformersLanguageModel(source), tokens(60, seed=1), tokens(20, seed=2)
    cache, rows = model.new_cache(4), torch.cat([long[:, 55:], short[:, 15:]])
    model.forward(long[:, :55], cache.rows([2]))
    model.forward(short[:, :15], cache.rows([0]))
    found = model.forward(rows, cache.rows([2, 0]))
    cache.rows([2, 0]).crop(5)
    again, features = model.forward(rows, cache.rows([2, 0]), layers=(0, 1))
    close(again, found)
    for row, text in enumerate((long, short)):
        close(found[row], own_logits(source, text)[0, -5:])
        close(features[row], own_features(source, text, (0, 1))[0, -5:])
    equal = model.forward(torch.cat([long[:, :4], long[:, :4]]), model.new_cache(2), num_logits=1)
    close(equal[1], own_logits(source, long)[0, 3:4])


@pytest.mark.parametrize("name", ["Bart", "dynamic NTK", "GPTJ"])
def test_a_batch_decodes_what_its_rows_decode_alone_up_to_the_last_position(name):
    architecture, config, attention = ARCHITECTURES[name]
    target, draft = (built(architecture, config, attention) for _ in range(2))
    decoder = SpeculativeDecoder(
        ModelPair(*map(TransformersLanguageModel, (target, noised(draft, 0.02))))
    )
    prompts = [tokens(count, seed=count)[0].tolist() for count in (74, 9, 78)]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    together = [
        result.token_ids for result in decoder.generate(prompts, params, num_draft_tokens=4)
    ]
    assert together == [
        decoder.generate(prompt, params, num_draft_tokens=0).token_ids for prompt in prompts
    ]
    assert list(map(len, together)) == [6, 12, 2]


# Rotary frequencies that depend on the length


@pytest.fixture(scope="module")
def longrope():
    rope = {**LONG, "original_max_position_embeddings": LONG_FROM}
    return built(
        "Phi3", {**SHAPE, "original_max_position_embeddings": LONG_FROM, "rope_parameters": rope}
    )


def test_longrope_ends_where_its_frequencies_change_and_is_exact_until_there(longrope, caplog):
    model = TransformersLanguageModel(longrope)
    assert "is limited to 24 positions, since its rotary frequencies change there" in caplog.text
    ids, cache = tokens(LONG_FROM, seed=1), model.new_cache(1)
    found = [model.forward(part, cache) for part in ids.split(5, dim=1)]
    close(torch.cat(found, dim=1), own_logits(longrope, ids))
    for full in (cache, DynamicKVCache()):
        with pytest.raises(
            ValueError, match=r"query_token_ids reaches \d+ tokens, Phi3ForCausalLM can take 24"
        ):
            model.forward(tokens(30, seed=2), full)


def test_longrope_drafts_what_plain_decoding_gives_and_refuses_a_longer_prompt(longrope):
    model = TransformersLanguageModel(longrope)
    decoder = SpeculativeDecoder(ModelPair(model, model))
    params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    prompts = [tokens(count, seed=count)[0].tolist() for count in (5, 21)]
    plain = [decoder.generate(prompt, params, num_draft_tokens=0) for prompt in prompts]
    drafted = decoder.generate(prompts, params, num_draft_tokens=4)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
    assert [len(result.token_ids) for result in plain] == [19, 3]
    assert {result.finish_reason for result in drafted} == {"length"}
    with pytest.raises(ValueError, match="6 more than the 24 that the model can take"):
        decoder.generate(tokens(30, seed=3)[0].tolist(), params)


def test_longrope_that_never_changes_has_all_its_positions():
    rope = {**LONG, "original_max_position_embeddings": 80}
    source = built(
        "Phi3", {**SHAPE, "original_max_position_embeddings": 80, "rope_parameters": rope}
    )
    assert TransformersLanguageModel(source).max_positions == 80


def test_in_half_precision_a_model_that_ignores_our_positions_reads_its_rows_one_by_one():
    config = transformers.PLBartConfig(**BART, max_position_embeddings=80, is_encoder_decoder=False)
    torch.manual_seed(0)
    # its weights hide wrong positions
    source = transformers.PLBartForCausalLM(config).to(torch.bfloat16).eval()
    model, text = TransformersLanguageModel(source), tokens(20, seed=2)
    cache = model.new_cache(2)
    model.forward(tokens(50, seed=1), cache.rows([0]))
    model.forward(text[:, :15], cache.rows([1]))
    found, expected = (
        model.forward(text[:, 15:].expand(2, -1), cache)[1].float(),
        own_logits(source, text)[0, -5:].float(),
    )
    assert (found - expected).norm() < 0.1 * (expected - expected.mean()).norm()
