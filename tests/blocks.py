"""Random block drafters in the layout of z-lab/dflash, and what they compute, written down once more without cache or batch."""

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from tests.heads import TARGET_WIDTH, VOCAB, Tensors, rms, turned

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
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * (0.3 if len(shape) == 2 else 0.2) + (1 if len(shape) == 1 else 0)

    d, head_dim, inner = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    tensors = {"fc.weight": random(d, num_layers * TARGET_WIDTH), "hidden_norm.weight": random(d), "norm.weight": random(d)}
    for index in range(config["num_hidden_layers"]):
        at = f"layers.{index}."
        tensors |= {
            f"{at}input_layernorm.weight": random(d),
            f"{at}post_attention_layernorm.weight": random(d),
            f"{at}self_attn.q_proj.weight": random(queries, d),
            f"{at}self_attn.k_proj.weight": random(keys, d),
            f"{at}self_attn.v_proj.weight": random(keys, d),
            f"{at}self_attn.o_proj.weight": random(d, queries),
            f"{at}self_attn.q_norm.weight": random(head_dim),
            f"{at}self_attn.k_norm.weight": random(head_dim),
            f"{at}mlp.gate_proj.weight": random(inner, d),
            f"{at}mlp.up_proj.weight": random(inner, d),
            f"{at}mlp.down_proj.weight": random(d, inner),
        }
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
    epsilon, head_dim = config["rms_norm_eps"], config["head_dim"]
    masks = [config["dflash_config"]["mask_token_id"]] * (config["block_size"] - 1)
    stream = embedding[[token, *masks]]
    context = rms(features @ tensors["fc.weight"].T, tensors["hidden_norm.weight"], epsilon)
    for index, kind in enumerate(config["layer_types"]):

        def w(name: str, at: str = f"layers.{index}.") -> torch.Tensor:
            return tensors[f"{at}{name}.weight"]

        read = rms(stream, w("input_layernorm"), epsilon)
        seen = torch.cat([context, read])
        place = torch.arange(len(seen))
        q, k, v = (
            (x @ w(f"self_attn.{part}_proj").T).unflatten(-1, (-1, head_dim)).transpose(0, 1)
            for part, x in zip("qkv", (seen, seen, seen), strict=True)
        )
        q, k = (turned(rms(x, w(f"self_attn.{part}_norm"), epsilon), config["rope_theta"]) for part, x in (("q", q), ("k", k)))
        groups = config["num_attention_heads"] // config["num_key_value_heads"]
        scores = q[:, len(context) :] @ k.repeat_interleave(groups, 0).transpose(1, 2) / head_dim**0.5
        if kind == "sliding_attention":
            away = (place[len(context) :, None] - place).abs() >= config["sliding_window"]
            scores = scores.masked_fill(away, -torch.inf)
        attended = scores.softmax(-1) @ v.repeat_interleave(groups, 0)
        stream = stream + attended.transpose(0, 1).flatten(1) @ w("self_attn.o_proj").T
        x = rms(stream, w("post_attention_layernorm"), epsilon)
        stream = stream + (F.silu(x @ w("mlp.gate_proj").T) * (x @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    normed = rms(stream[1:], tensors["norm.weight"], epsilon)
    if "d2t" not in tensors:
        return normed @ output.T
    found = normed.new_full((len(normed), VOCAB), -torch.inf)
    found[:, torch.arange(len(tensors["d2t"])) + tensors["d2t"]] = normed @ tensors["lm_head.weight"].T
    return found
