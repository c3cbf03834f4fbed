"""Reads a Llama model from a folder, without transformers' model classes, whose import takes longer than all else of a start.

Only what the folder says in full is read here: what its configuration leaves to a default, and whatever is not as expected,
is left to transformers.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from naive_speculate.infer.end_tokens import end_tokens
from naive_speculate.infer.llama.weights import (
    LlamaShape,
    LlamaWeights,
    RotaryTable,
    default_rotary,
    is_supported,
    shape_in,
    weights_in,
)

REQUIRED = [
    "dtype",
    "eos_token_id",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
    "rope_parameters",
    "tie_word_embeddings",
    "vocab_size",
]
"""What a configuration must say to be read without transformers."""
_SIZES = [name for name in REQUIRED if name.endswith("_size") or name.startswith(("num_", "max_"))]


@dataclass
class StoredLlama:
    """A model's weights, and what `LlamaLanguageModel` tells of it."""

    name: str
    eos_token_ids: tuple[int, ...]
    vocab_size: int
    max_positions: int
    num_parameters: int
    num_layers: int
    hidden_size: int
    input_embeddings: torch.Tensor
    shape: LlamaShape
    weights: LlamaWeights
    rotary: RotaryTable


def stored_dtype(folder: Path) -> torch.dtype | None:
    """What the weights of a folder that can be read here are stored in; None where it cannot."""
    config = _config(folder)
    return None if config is None else getattr(torch, str(config.dtype), None)


def read_llama(folder: Path, device: torch.device, dtype: torch.dtype) -> StoredLlama | None:
    """The model in a folder, its weights on a device in a dtype; None where that is left to transformers."""
    config = _config(folder)
    if config is None:
        return None
    shape = shape_in(config)
    try:
        state = {name: tensor for file in _files(folder) for name, tensor in load_file(file).items()}
    except (OSError, ValueError, KeyError, SafetensorError):
        return None
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    if {name: tuple(tensor.shape) for name, tensor in state.items()} != _expected(config, shape):
        return None
    state = {name: tensor.to(device, dtype) for name, tensor in state.items()}
    return StoredLlama(
        name=str(folder),
        eos_token_ids=end_tokens(_read_json(folder / "generation_config.json"), config, str(folder)),
        vocab_size=shape.vocab_size,
        max_positions=config.max_position_embeddings,
        num_parameters=sum(tensor.numel() for tensor in state.values()),
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        input_embeddings=state["model.embed_tokens.weight"],
        shape=shape,
        weights=weights_in(state, shape.num_layers),
        rotary=default_rotary(config.rope_parameters["rope_theta"], shape.head_dim, device),
    )


def _config(folder: Path) -> Any:
    told = _read_json(folder / "config.json")
    return full_config(told) if told is not None and told.get("architectures") == ["LlamaForCausalLM"] else None


def _read_json(path: Path) -> dict[str, Any] | None:
    """What a file holds; None where it is missing or damaged, which transformers takes alike."""
    try:
        told: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def full_config(told: Mapping[str, Any]) -> Any:
    """A Llama's configuration as it stands in a file, without transformers' class for it; None where it leaves something to
    defaults, or is not as expected."""
    if told.get("model_type") != "llama":
        return None
    if any(name not in told for name in REQUIRED) or told.get("attention_bias") or "auto_map" in told:
        return None
    if any(told[name] is None for name in REQUIRED if name not in ("eos_token_id", "head_dim")):
        return None
    if any(type(told[name]) is not int or told[name] < 1 for name in _SIZES):
        return None
    config = SimpleNamespace(**told)
    rope = config.rope_parameters
    if not isinstance(rope, dict) or rope.get("rope_type") != "default" or "rope_theta" not in rope:
        return None
    return config if is_supported(config) is None else None


def _files(folder: Path) -> list[Path]:
    whole = folder / "model.safetensors"
    if whole.is_file():
        return [whole]
    index: Mapping[str, Any] = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    return [folder / name for name in sorted(set(index["weight_map"].values()))]


def _expected(config: Any, shape: LlamaShape) -> dict[str, tuple[int, ...]]:
    """All weights that there must be, with their shapes."""
    hidden, inner = shape.hidden_size, config.intermediate_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    wanted: dict[str, tuple[int, ...]] = {"model.embed_tokens": (shape.vocab_size, hidden), "model.norm": (hidden,)}
    if not config.tie_word_embeddings:
        wanted["lm_head"] = (shape.vocab_size, hidden)
    for index in range(shape.num_layers):
        wanted |= {f"model.layers.{index}.{name}": size for name, size in layer.items()}
    return {f"{name}.weight": size for name, size in wanted.items()}
