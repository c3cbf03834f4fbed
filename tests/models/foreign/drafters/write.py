"""Writes tiny drafters by their libraries' own classes, and what those compute.

Run once, where speculators 0.9.0 and dflash 0.1.0 are installed, in this folder: `python write.py`.
Each folder has `config.json`, `model.safetensors`, and `expected.safetensors`: the target's
matrices, its hidden states before each text's last token, the texts, and the library's logits and
greedy drafts. Weights are stored in float16 and computed in float32.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, Qwen3Config

HERE = Path(__file__).parent
VOCAB, WIDTH, KNOWN, LAYERS = 48, 16, 30, [1, 2, 3]
MASK, BLOCK = 47, 5
LENGTHS = (11, 4)
LAYER: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}  # fmt: skip
SLIDING = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 4,
    "use_sliding_window": True,
    "max_window_layers": 0,
}
OPTIONS: dict[str, Any] = {
    "input_embedding_scale": 3.0,
    "output_multiplier": 0.5,
    "final_logit_softcapping": 2.0,
}
CONVOLUTIONS = {"conv_kernel_size": 3, "conv_group_size": 4}
SELECTOR = {"selector_rank": 6, "selector_top_k": 5}
SPECULATORS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "dflash": ("dflash", {"draft_vocab_size": KNOWN}, SLIDING),
    "dflash-all-tokens": ("dflash", {"sliding_window_non_causal": True}, SLIDING),
    "dspark": ("dspark", {"draft_vocab_size": KNOWN, "markov_rank": 6}, {}),
    "dspark-gated": (
        "dspark",
        {"markov_rank": 6, "markov_head_type": "gated", "sample_from_anchor": False},
        SLIDING,
    ),
    "dspark-rnn": (
        "dspark",
        {"markov_rank": 6, "markov_head_type": "rnn", "sample_from_anchor": False},
        {},
    ),
    "dflash2": ("dflash2", CONVOLUTIONS | SELECTOR, SLIDING),
    "xpress": ("xpress", {"draft_vocab_size": KNOWN, "xpress_rank": 6}, {}),
}
Z_LAB: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "z-lab": ({}, SLIDING),
    "z-lab-options": (OPTIONS, SLIDING | {"is_causal": False}),
    "z-lab-dflash2": (CONVOLUTIONS | SELECTOR, {"is_causal": True}),
}


def randomized(model: torch.nn.Module) -> None:
    """Give all weights values that float16 has, and norms values about 1."""
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point() or "rotary" in name:
            continue
        values = torch.randn(tensor.shape) * (0.3 if tensor.dim() > 1 else 0.2)
        tensor.copy_((values + ("norm" in name and tensor.dim() == 1)).half().float())


def given() -> dict[str, torch.Tensor]:
    """The target's matrices, texts and states."""
    found = {
        name: torch.randn(VOCAB, WIDTH).half().float()
        for name in ("input_embeddings", "output_embeddings")
    }
    for index, length in enumerate(LENGTHS):
        found[f"tokens_{index}"] = torch.randint(0, VOCAB - 1, (length,))
        found[f"features_{index}"] = torch.randn(length - 1, len(LAYERS) * WIDTH).half().float()
    return found


def save(name: str, model: Any, config: dict[str, Any], expected: dict[str, torch.Tensor]) -> None:
    folder = HERE / name
    model.half().save_pretrained(folder)
    (folder / "config.py").unlink(missing_ok=True)  # speculators copies its own
    if config:
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    save_file(expected, folder / "expected.safetensors")


def one_of_speculators(kind: str, options: dict[str, Any], layer: dict[str, Any]) -> Any:
    from speculators import SpeculatorModel, SpeculatorModelConfig
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    layers = Qwen3Config(**LAYER | layer)
    layers._attn_implementation = "eager"
    proposals = [GreedyTokenProposalConfig(speculative_tokens=BLOCK)]
    config = SpeculatorModelConfig.registry[kind](
        transformer_layer_config=layers, block_size=BLOCK, mask_token_id=MASK,
        aux_hidden_state_layer_ids=LAYERS,
        speculators_config=SpeculatorsConfig(
            algorithm=kind, proposal_methods=proposals, default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=[]),
        ),
        **{"draft_vocab_size": VOCAB} | options,
    )  # fmt: skip
    return SpeculatorModel.registry[kind](config).eval()


def drafted_by_speculators(model: Any, tokens: torch.Tensor, features: torch.Tensor) -> Any:
    """Logits `[drafts, known]` and greedy drafts; each slot is computed after the drafts before."""
    length, config = len(tokens), model.config
    first, known = int(not config.sample_from_anchor), model.d2t
    text = torch.cat([tokens, torch.zeros(2 * BLOCK, dtype=torch.int64)])[None]
    states = torch.zeros(1, text.shape[1], features.shape[1])
    states[0, : length - 1] = features
    allowed = torch.zeros_like(text)
    allowed[0, length - 1] = 1
    logits, drafts = [], []
    for slot in range(first, BLOCK):
        hidden, found, *_ = model._backbone_forward(
            states, text, allowed, torch.zeros(1, text.shape[1], WIDTH),
            torch.zeros_like(text), max_anchors=1,
        )  # fmt: skip
        block = text[0, length - 1 : length - 1 + BLOCK]
        shifted = torch.cat([block[:1], block[:-1]])
        before = block if config.sample_from_anchor else shifted
        one = corrected(model, found[0], hidden, before, tokens)[slot]
        token = int(one.argmax())
        token += 0 if known is None else int(known[token])
        text[0, length + slot - first] = token
        logits.append(one)
        drafts.append(token)
    return torch.stack(logits), torch.tensor(drafts)


def corrected(model: Any, logits: Any, hidden: Any, before: Any, tokens: Any) -> Any:
    """Logits of all slots, by the kind's own head; `before`: the token before each prediction."""
    kind = model.config.speculators_model_type
    if kind == "dspark":
        head = model.markov_head
        return logits + head.block_bias(prev_token_ids=before[None], hidden_states=hidden)[0]
    if kind == "dflash2":
        found, scores = model.candidate_selector.select(logits[None], hidden, before[None])
        return torch.full_like(logits, -torch.inf).scatter(-1, found[0], scores[0])
    if kind == "xpress":
        if not model.config.sample_from_anchor:  # slot 0 holds the last token
            before = torch.cat([tokens[-2:-1], before[1:]])
        return logits + model.refiner_head.block_bias(before[None], hidden_states=hidden)[0]
    return logits


def one_of_peagle() -> Any:
    from speculators import SpeculatorModel, SpeculatorModelConfig
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    layers = LlamaConfig(**LAYER)
    layers._attn_implementation = "eager"
    config = SpeculatorModelConfig.registry["peagle"](
        transformer_layer_config=layers, mask_token_id=MASK, draft_vocab_size=KNOWN,
        eagle_aux_hidden_state_layer_ids=LAYERS, fc_norm=True,
        speculators_config=SpeculatorsConfig(
            algorithm="peagle", default_proposal_method="greedy",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=BLOCK)],
            verifier=VerifierConfig(name_or_path=None, architectures=[]),
        ),
    )  # fmt: skip
    return SpeculatorModel.registry["peagle"](config).eval()


def drafted_by_peagle(model: Any, tokens: torch.Tensor, features: torch.Tensor) -> Any:
    """Logits after the last token and after each mask, and greedy drafts: the training's forward
    over the whole text, and one chain of masks."""
    from speculators.models.peagle import core

    count, found = len(features), []
    padded = torch.cat([features, torch.zeros(BLOCK, features.shape[1])])[None]
    text = torch.cat([tokens[1:], torch.zeros(BLOCK, dtype=torch.int64)])[None]
    chain = torch.arange(1, BLOCK)
    chosen = torch.cat([torch.arange(count), torch.full_like(chain, count - 1)])
    depths = torch.cat([torch.zeros(count, dtype=torch.int64), chain])
    core.generate_cod_sample_indices = lambda **_: (chosen, depths)
    core.compute_metrics = lambda **given: (None, found.append(given["logits"][0]))
    model(
        padded, text, torch.zeros_like(text),
        verifier_last_hidden_states=torch.zeros(1, text.shape[1], WIDTH),
    )  # fmt: skip
    logits = found[0][count - 1 :]
    drafts = logits.argmax(-1)
    return logits, drafts + model.d2t[drafts]


def one_of_z_lab(options: dict[str, Any], layer: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    from dflash.model import DFlash2DraftModel, DFlashDraftModel

    kind = DFlash2DraftModel if "selector_rank" in options else DFlashDraftModel
    section = {"mask_token_id": MASK, "target_layer_ids": [layer - 1 for layer in LAYERS]}
    more = {
        "architectures": [kind.__name__],
        "block_size": BLOCK,
        "num_target_layers": 5,
        "dflash_config": section | options,
    }
    config = Qwen3Config(**LAYER | layer, **more)
    return kind(config).eval(), {"model_type": "qwen3"} | LAYER | layer | more


def drafted_by_z_lab(
    model: Any, tokens: torch.Tensor, features: torch.Tensor, matrices: dict[str, torch.Tensor]
) -> Any:
    from dflash.model import DFlash2DraftModel, _draft_value

    scale = float(_draft_value(model.config, "input_embedding_scale", 1.0))
    block = torch.tensor([int(tokens[-1])] + [MASK] * (BLOCK - 1))
    hidden = model(
        target_hidden=features[None],
        noise_embedding=matrices["input_embeddings"][block][None] * scale,
        position_ids=torch.arange(len(features) + BLOCK)[None],
    )[:, 1:]
    logits = model.compute_logits(hidden, lambda x: x @ matrices["output_embeddings"].T)
    if not isinstance(model, DFlash2DraftModel):
        return logits[0], logits[0].argmax(-1)
    drafts = model.candidate_selector.select(hidden, logits, tokens[-1:], 0.0)[0][0]
    before, found = torch.cat([tokens[-1:], drafts[:-1]]), []
    for slot in range(BLOCK - 1):  # one slot's distribution, as `select` computes it
        one = slice(slot, slot + 1)
        _, candidates, probs = model.candidate_selector.select(
            hidden[:, one], logits[:, one], before[one], 1.0
        )
        found.append(
            torch.full((VOCAB,), -torch.inf).scatter(-1, candidates[0, 0], probs[0, 0].log())
        )
    return torch.stack(found), drafts


@torch.no_grad()
def main() -> None:
    for name, (kind, options, layer) in SPECULATORS.items():
        torch.manual_seed(len(name))
        model, expected = one_of_speculators(kind, options, layer), given()
        randomized(model)
        model.embed_tokens.weight.copy_(expected["input_embeddings"])
        if model.use_draft_vocab:
            chosen = torch.randperm(VOCAB - 1)[:KNOWN].sort().values
            model.d2t.copy_(chosen - torch.arange(KNOWN))
            model.t2d.zero_()
            model.t2d[chosen] = True
        else:
            model.lm_head.weight.copy_(expected["output_embeddings"])
        for index in range(len(LENGTHS)):
            found = drafted_by_speculators(
                model, expected[f"tokens_{index}"], expected[f"features_{index}"]
            )
            expected[f"logits_{index}"], expected[f"drafts_{index}"] = found
        save(name, model, {}, expected)
    torch.manual_seed(0)
    model, expected = one_of_peagle(), given()
    randomized(model)
    chosen = torch.randperm(VOCAB - 1)[:KNOWN].sort().values
    model.d2t.copy_(chosen - torch.arange(KNOWN))
    model.t2d.copy_(torch.isin(torch.arange(VOCAB), chosen))
    for index in range(len(LENGTHS)):
        found = drafted_by_peagle(model, expected[f"tokens_{index}"], expected[f"features_{index}"])
        expected[f"logits_{index}"], expected[f"drafts_{index}"] = found
    save("peagle", model, {}, expected)
    for name, (options, layer) in Z_LAB.items():
        torch.manual_seed(len(name))
        (model, config), expected = one_of_z_lab(options, layer), given()
        randomized(model)
        for index in range(len(LENGTHS)):
            found = drafted_by_z_lab(
                model, expected[f"tokens_{index}"], expected[f"features_{index}"], expected
            )
            expected[f"logits_{index}"], expected[f"drafts_{index}"] = found
        save(name, model, config, expected)


if __name__ == "__main__":
    main()
