"""Inkling's MTP layers, which have short convolutions and relative positions: ours draft what
transformers 5.23 computes over the whole text, and with one layer what its `generate` drafts."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, InklingForCausalLM, InklingTextConfig

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, watch
from naive_speculate.models import wrap
from tests.speculate.rows import same_alone, same_as_plain, windows

PROMPT, WIDTH = [3, 5, 7, 11], 16
SIZES = {
    "vocab_size": 24,
    "hidden_size": WIDTH,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "swa_num_attention_heads": 2,
    "swa_num_key_value_heads": 1,
    "swa_head_dim": 8,
    "sliding_window_size": 4,
    "d_rel": 4,
    "rel_extent": 8,
    "mlp_layer_types": ["dense"] * 4,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "logits_mup_width_multiplier": 1.0,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
    "mtp_local_layer_ids": [1],
}


def build(count: int, chained: bool, folder: Path) -> ModelPair:
    """A model with MTP layers, named as in its published checkpoint."""
    torch.manual_seed(1)
    more = {"num_mtp_layers": count, "chain_hidden_post_norm": chained}
    model = InklingForCausalLM(InklingTextConfig(**SIZES | more, local_layer_ids=[0]))
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for index in range(count):
        local = [0] if index in SIZES["mtp_local_layer_ids"] else []
        donor = InklingForCausalLM(InklingTextConfig(**SIZES | more, local_layer_ids=local))
        at = f"model.mtp.layers.{index}."
        for name, tensor in donor.model.layers[0].state_dict().items():
            tensors[f"{at}transformer_block.{name}"] = tensor
        for name in ("hidden_norm", "embed_norm"):
            tensors[f"{at}{name}.weight"] = 1 + 0.3 * torch.randn(WIDTH)
        tensors[f"{at}input_proj.weight"] = torch.randn(WIDTH, 2 * WIDTH) / 4
    if chained:
        tensors["model.mtp.chain_norm.weight"] = 1 + 0.3 * torch.randn(WIDTH)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return ModelPair(wrap(AutoModelForCausalLM.from_pretrained(folder)))


@torch.no_grad()
def whole(pair: ModelPair, text: list[int], count: int) -> list[int]:
    """Greedy drafts by transformers' own layers over the whole text, without a cache."""
    mtp, model = pair.mtp._mtp, pair.target.model
    tokens, size = list(text), len(text) - 1
    hidden = model.model(torch.tensor([text])).last_hidden_state[:, :-1]
    back = torch.arange(size)[:, None] - torch.arange(size)
    for layer in range(count):
        sliding = mtp.config.layer_types[layer] == "hybrid_sliding"
        hidden_from = (back < 0) | (back >= (mtp.config.sliding_window if sliding else size))
        mask = torch.zeros(size, size).masked_fill(hidden_from, torch.finfo(torch.float32).min)
        hidden = mtp.layers[layer](
            mtp.embed_tokens(torch.tensor([tokens[1 + layer : 1 + layer + size]])),
            hidden,
            None,
            mask[None, None],
            None,
            None,
        )
        if mtp.use_shared_post_norm:
            hidden = mtp.shared_post_norm(hidden)
        tokens.append(int(mtp._project_to_logits(hidden[:, -1]).argmax()))
    return tokens[len(text) :]


@pytest.mark.parametrize(("count", "chained"), [(3, False), (3, True)])
def test_the_ith_draft_is_that_of_the_ith_layer_over_the_whole_text(tmp_path, count, chained):
    pair = build(count, chained, tmp_path)
    params = SamplingParams(max_tokens=10, temperature=0, ignore_eos=True)
    options = {"drafter": "mtp", "num_draft_tokens": count}
    run = same_as_plain(SpeculativeDecoder(pair), PROMPT, params, **options)
    assert pair.mtp.num_mtp_layers == count
    seen = list(windows(run.trace.events, PROMPT))
    assert len(seen) > 4
    for text, window in seen:
        drafts = [event.token_id for event in window]
        assert drafts == whole(pair, text, len(drafts))
    params = [SamplingParams(max_tokens=6, seed=seed, ignore_eos=True) for seed in (1, 2)]
    same_alone(SpeculativeDecoder(pair), [[*PROMPT, 1, 2], [9, 1]], params, **options)


def test_with_one_layer_every_draft_is_that_of_transformers_own_generate(tmp_path):
    pair = build(1, False, tmp_path)
    trace = watch(pair.target.model, None, PROMPT, use_mtp=True, max_new_tokens=10, do_sample=False)
    params = SamplingParams(max_tokens=10, temperature=0, ignore_eos=True)
    run = SpeculativeDecoder(pair).generate(PROMPT, params, drafter="mtp", num_draft_tokens=1)
    own, theirs = (
        {len(text): [event.token_id for event in window] for text, window in windows(each, PROMPT)}
        for each in (run.trace.events, trace.events)
    )
    shared = own.keys() & theirs.keys()
    assert len(shared) > 5
    assert {at: own[at] for at in shared} == {at: theirs[at] for at in shared}


def test_a_checkpoint_without_its_mtp_layers_cannot_be_watched_and_says_so_in_one_line(tmp_path):
    model = build(1, False, tmp_path).target.model
    path = tmp_path / "model.safetensors"
    kept = {name: each for name, each in load_file(path).items() if ".mtp." not in name}
    save_file(kept, path, {"format": "pt"})
    with pytest.raises(ValueError, match=r"^transformers .* weights are missing") as caught:
        watch(model, None, PROMPT, use_mtp=True, max_new_tokens=4)
    assert "\n" not in str(caught.value)
