"""Random block drafters in the layout of z-lab/dflash, and what they compute, written down once more without cache or batch."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.heads import TARGET_WIDTH, VOCAB, Tensors, eager_layer, eager_logits, layer_tensors, randomly, rms

BLOCK = 5
CONFIG: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "attention_bias": False,
    "block_size": BLOCK,
    "dflash_config": {"mask_token_id": 96, "target_layer_ids": [0, 1, 3]},
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": TARGET_WIDTH,
    "intermediate_size": 40,
    "layer_types": ["full_attention", "full_attention"],
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_target_layers": 4,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 5000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": VOCAB,
}


def block_tensors(config: dict[str, Any] = CONFIG, known: int | None = None, seed: int = 7, num_layers: int = 3) -> Tensors:
    """Random weights that read `num_layers` layers; with `known`, an output matrix for so many of the target's tokens."""
    random, generator = randomly(seed)
    d, head_dim = config["hidden_size"], config["head_dim"]
    tensors = {"fc.weight": random(d, num_layers * TARGET_WIDTH), "hidden_norm.weight": random(d), "norm.weight": random(d)}
    for index in range(config["num_hidden_layers"]):
        at = f"layers.{index}."
        tensors |= layer_tensors(config, at, d, random)
        tensors |= {f"{at}self_attn.{part}_norm.weight": random(head_dim) for part in "qk"}
    if known is not None:
        tokens = torch.randperm(VOCAB, generator=generator)[:known].sort().values
        tensors |= {"lm_head.weight": random(known, d), "d2t": tokens - torch.arange(known)}
    return tensors


def save_block(folder: Path, tensors: Tensors, config: dict[str, Any] = CONFIG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def eager_block(
    tensors: Tensors, config: dict[str, Any], embedding: torch.Tensor, output: torch.Tensor, token: int, features: torch.Tensor
) -> torch.Tensor:
    """Logits of the draft tokens after `token`, `[block_size - 1, vocab_size]`; `features` are the target's before it."""
    masks = [config["dflash_config"]["mask_token_id"]] * (config["block_size"] - 1)
    stream = embedding[[token, *masks]]
    context = rms(features @ tensors["fc.weight"].T, tensors["hidden_norm.weight"], config["rms_norm_eps"])
    for index, kind in enumerate(config["layer_types"]):
        at, window = f"layers.{index}.", config["sliding_window"] if kind == "sliding_attention" else torch.inf
        read = rms(stream, tensors[f"{at}input_layernorm.weight"], config["rms_norm_eps"])
        seen = torch.cat([context, read])
        stream = eager_layer(tensors, config, at, stream, seen, lambda back, window=window: back.abs() >= window)
    return eager_logits({"lm_head.weight": output} | tensors, config, stream[1:])
