"""Targets with recurrent layers: their state is restored and replayed after a rejection, in
every family that transformers builds."""

import random

import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.models.load import wrap
from naive_speculate.models.recurrent import RecurrentLanguageModel
from naive_speculate.naive import speculative_decode
from naive_speculate.testing import enumerate_outputs, exact_outputs, largest_difference
from naive_speculate.tools.differ.scores import Scores
from tests.speculate.rows import same_alone

COMMON = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "pad_token_id": None,
    "bos_token_id": 1,
}
COMMON |= {"eos_token_id": 2}
ATTENTION = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
MAMBA_2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 16,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
}
MAMBA_2 |= {"mamba_chunk_size": 8}  # texts are short: those of 256 are padding
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
DELTA |= {"head_dim": 8}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "qk_nope_head_dim": 8,
}
KDA = {"num_local_experts": 4, "linear_head_dim": 8, "linear_num_heads": 4}
HYBRID = {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
CONVOLUTION = {"layer_types": ["conv", "full_attention", "conv"]}
JAMBA = {
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "mamba_d_state": 8,
}
NEMOTRON = {
    "mamba_num_heads": 8,
    "mamba_head_dim": 8,
    "ssm_state_size": 16,
    "n_groups": 1,
    "n_routed_experts": 4,
}
NEMOTRON |= {"head_dim": 8, "chunk_size": 8}
FAMILIES = {
    "bailing_hybrid": ATTENTION
    | LATENT
    | EXPERTS
    | HYBRID
    | {"n_group": 1, "topk_group": 1, "head_dim": 8},
    "bamba": ATTENTION | MAMBA_2 | {"attn_layer_indices": [1]},
    "falcon_h1": ATTENTION | MAMBA_2 | {"mamba_d_ssm": 64, "head_dim": 8},
    "falcon_mamba": {"state_size": 8},
    "granitemoehybrid": ATTENTION
    | MAMBA_2
    | {"layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 4},
    "jamba": ATTENTION | JAMBA | {"num_experts": 4, "num_experts_per_tok": 2, "mamba_dt_rank": 2},
    "kimi_linear": ATTENTION | LATENT | EXPERTS | KDA | HYBRID,
    "lfm2": ATTENTION | CONVOLUTION,
    "lfm2_moe": ATTENTION | EXPERTS | CONVOLUTION,
    "lfm3": ATTENTION
    | {"layer_types": ["conv", "full_attention", "sliding_attention"], "sliding_window": 4},
    "mamba": {"state_size": 8},
    "mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8},
    "nemotron_h": ATTENTION
    | NEMOTRON
    | {"layer_types": ["linear_attention", "full_attention", "mlp"]},
    "olmo_hybrid": ATTENTION | DELTA | HYBRID,
    "qwen3_5_moe_text": ATTENTION
    | DELTA
    | EXPERTS
    | HYBRID
    | {"shared_expert_intermediate_size": 16},
    "qwen3_5_text": ATTENTION | DELTA | HYBRID,
    "qwen3_next": ATTENTION | DELTA | EXPERTS | HYBRID | {"shared_expert_intermediate_size": 16},
    "zamba": ATTENTION
    | {"layers_block_type": ["linear_attention", "hybrid", "hybrid"], "n_mamba_heads": 2},
    "zamba2": ATTENTION
    | {
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention"],
        "num_mem_blocks": 1,
        "chunk_size": 8,
    },
}
ONE_BY_ONE = {
    "falcon_mamba",
    "jamba",
    "mamba",
    "zamba",
}  # with several tokens they forget their state
CROPPED = {"lfm2", "lfm2_moe", "lfm3"}  # transformers' cache rolls back all of their layers
STEPS = [
    (9, 0),
    (1, 0),
    (3, 0),
    (2, 0),
    (5, 2),
    (20, 3),
    (1, 0),
    (1, 1),
    (2, 1),
    (3, 30),
    (18, 17),
    (5, 0),
    (4, 0),
]
"""How many tokens two rows read in turn, and how many of them are then rolled back; up to 17 are
replayed."""
PROMPTS = [[5, 6, 7, 8, 9, 5, 6], [31, 30, 31, 30, 31]]


def built(family: str, seed: int = 0):
    config = CONFIG_MAPPING[family](**(COMMON | FAMILIES[family]))
    torch.manual_seed(seed)
    model = getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family])(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # untrained weights repeat one token; these do not
            parameter += 0.05 * torch.randn_like(parameter)
    return model


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_after_any_rollback_the_logits_are_those_of_a_fresh_forward(family):
    source = built(family)
    model = wrap(source)
    assert isinstance(model, RecurrentLanguageModel)
    cache, choose, rows = model.new_cache(2), random.Random(3), [[], []]
    for number, (count, back) in enumerate(STEPS):
        row = rows[number % 2]
        row += [choose.randrange(3, 97) for _ in range(count)]
        logits = model.forward(torch.tensor([row[-count:]]), cache.rows([number % 2]))[0]
        expected = source(input_ids=torch.tensor([row]), use_cache=False).logits[0, -count:]
        assert torch.allclose(logits, expected, atol=1e-5), (number, count)
        del row[max(0, len(row) - back) :]
        cache.keep(number % 2, len(row))
        assert cache.lengths[number % 2] == len(row)
    for again in (model, wrap(source.to(torch.bfloat16))):  # whose rounding hides more
        assert again._together == (family not in ONE_BY_ONE)
        assert again._crops == (family in CROPPED)


@torch.no_grad()
@pytest.mark.parametrize("family", ["falcon_mamba", "mamba2", "qwen3_next"])
def test_greedy_output_is_the_target_s_and_a_row_of_a_batch_is_what_it_is_alone(family):
    """One by one, with a state alone, and a hybrid; for each row, every family does what the
    test above says."""
    source = built(family)
    params = [
        SamplingParams(max_tokens=6, seed=5, ignore_eos=True, temperature=temperature)
        for temperature in (0, 0.2)
    ]
    decoder = SpeculativeDecoder(ModelPair(wrap(source)))
    together = same_alone(
        decoder, PROMPTS, params, num_draft_tokens=3, drafter="suffix", detail="none"
    )
    assert any(r.metrics.num_accepted_draft_tokens < r.metrics.num_draft_tokens for r in together)
    prompt, found = PROMPTS[0], together[0].token_ids
    logits = source(input_ids=torch.tensor([prompt + found]), use_cache=False).logits[
        0, len(prompt) - 1 : -1
    ]
    assert (logits.amax(-1) - logits.gather(-1, torch.tensor(found)[:, None])[:, 0]).max() < 1e-4


@torch.no_grad()
@pytest.mark.parametrize("family", ["lfm3", "qwen3_5_text"])
def test_a_forward_that_fails_leaves_the_state_before_it(family, monkeypatch):
    source = built(family)
    model = wrap(source)
    cache, ids = model.new_cache(1), [5, 6, 7, 8, 9, 10]
    model.forward(torch.tensor([ids[:3]]), cache)
    whole = source.lm_head.forward
    monkeypatch.setattr(
        source.lm_head, "forward", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("full"))
    )
    with pytest.raises(torch.OutOfMemoryError):
        model.forward(torch.tensor([[96]]), cache)  # after the layers have changed the state
    monkeypatch.setattr(source.lm_head, "forward", whole)
    cache.keep(0, 3)
    logits = model.forward(torch.tensor([ids[3:]]), cache)[0]
    expected = source(input_ids=torch.tensor([ids]), use_cache=False).logits[0, 3:]
    assert torch.allclose(logits, expected, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("family", ["lfm3", "qwen3_5_text"])
def test_a_copied_row_and_its_source_are_rolled_back_apart(family):
    source = built(family)
    model = wrap(source)
    cache, ids = model.new_cache(2), [5, 6, 7, 8, 9, 10, 11, 12]
    model.forward(torch.tensor([ids]), cache.rows([0]))
    cache.copy_row(0, 1)
    for row, kept in ((1, 6), (0, 3), (1, 7)):
        cache.keep(row, kept)
        own = ([*ids[:6], 13, 14] if row and kept == 7 else ids)[:kept]
        logits = model.forward(torch.tensor([[13, 14]]), cache.rows([row]))[0]
        expected = source(input_ids=torch.tensor([[*own, 13, 14]]), use_cache=False).logits[0, -2:]
        assert torch.allclose(logits, expected, atol=1e-5), (row, kept)


@pytest.mark.parametrize(("family", "replayed"), [("lfm2", 0), ("qwen3_5_text", 1)])
def test_a_drafter_s_single_tokens_are_rolled_back_without_reading_the_text_again(
    family, replayed, monkeypatch
):
    model, read = wrap(built(family)), []
    compute = model._compute_state
    monkeypatch.setattr(
        model, "_compute_state", lambda ids, *more: read.append(len(ids)) or compute(ids, *more)
    )
    cache = model.new_cache(1)
    model.forward(torch.tensor([list(range(5, 45))]), cache)
    for token in (5, 6, 7, 8):
        model.forward(torch.tensor([[token]]), cache)
    cache.keep(0, 41)
    model.forward(torch.tensor([[9]]), cache)
    assert read == [40, 1, 1, 1, 1, 1 + replayed]


def test_texts_of_a_recurrent_target_are_compared_and_it_decodes_in_the_one_file():
    source = built("lfm2")
    pair = ModelPair(wrap(source), wrap(built("lfm2", seed=1)))
    found = [
        token
        for step in speculative_decode(pair, PROMPTS[0], max_new_tokens=8)
        for token in step.token_ids
    ]
    assert (
        found
        == SpeculativeDecoder(pair)
        .generate(PROMPTS[0], SamplingParams(max_tokens=8, temperature=0))
        .token_ids
    )
    scores = Scores(pair).last(PROMPTS[0], 3)
    expected = source(input_ids=torch.tensor([PROMPTS[0]]), use_cache=False).logits[0, -1]
    assert torch.allclose(scores, expected, atol=1e-4)


def test_sampled_tokens_have_the_target_s_distribution():
    source = built("lfm2")
    pair, few = ModelPair(wrap(source), wrap(built("lfm2", seed=1))), [20, 21]
    params = SamplingParams(max_tokens=3, ignore_eos=True, allowed_token_ids=few, temperature=0.7)
    found = enumerate_outputs(pair, PROMPTS[1], params, num_draft_tokens=2, detail="probs")

    def next_probs(tokens):
        probs = torch.zeros(97, dtype=torch.float64)
        logits = source(input_ids=torch.tensor([[*PROMPTS[1], *tokens]]), use_cache=False).logits[
            0, -1, few
        ]
        return probs.index_copy(0, torch.tensor(few), (logits.double() / 0.7).softmax(-1))

    with torch.no_grad():
        assert largest_difference(found, exact_outputs(next_probs, 3, frozenset())) < 1e-5


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("rwkv", {"attention_hidden_size": 32}),
        ("xlstm", {"num_hidden_layers": 1, "num_heads": 4}),
        ("recurrent_gemma", ATTENTION | {"lru_width": 32, "head_dim": 8}),
        ("minimax", ATTENTION | HYBRID | {"num_local_experts": 4, "head_dim": 8}),
    ],
)
def test_a_state_that_is_not_in_transformers_cache_is_refused_with_the_reason(family, config):
    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family]
    torch.manual_seed(0)
    source = getattr(transformers, name)(CONFIG_MAPPING[family](**(COMMON | config)))
    with pytest.raises(
        ValueError,
        match=rf"model {name} \({family}\) cannot be decoded with a cache of its state: .+",
    ):
        wrap(source)


def test_another_kind_of_cache_is_refused():
    model = wrap(built("lfm2"))
    with pytest.raises(ValueError, match="must be a StateCache"):
        model.forward(torch.tensor([[5, 6]]), wrap(built("lfm2")).new_cache(1).caches[0])
