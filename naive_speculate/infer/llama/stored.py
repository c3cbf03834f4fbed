"""Reads a Llama model from a folder, without transformers' model classes, whose import takes longer than all else of a start.

Only what the folder says in full is read here: what its configuration leaves to a default, and whatever is not as expected,
is left to transformers.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

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


class _Files(Mapping[str, torch.Tensor]):
    """The tensors of safetensors files, each read when it is asked for, so that no more than what is wanted is ever held."""

    def __init__(self, files: list[Path], device: torch.device, dtype: torch.dtype) -> None:
        opened = [safe_open(file, "pt") for file in files]
        self._files = {name: file for file in opened for name in file.keys()}  # noqa: SIM118 - it is no dict
        self._where = device, dtype

    def __getitem__(self, name: str) -> torch.Tensor:
        # A copy of its own: a part of the mapped file would keep all of that in memory.
        return self._files[name].get_tensor(name).to(*self._where, copy=True)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(file.get_slice(name).get_shape()) for name, file in self._files.items()}


def read_llama(folder: Path, device: torch.device, dtype: torch.dtype) -> StoredLlama | None:
    """The model in a folder, its weights on a device in a dtype; None where that is left to transformers."""
    config = _config(folder)
    if config is None:
        return None
    try:
        state = _Files(_files(folder), device, dtype)
        shapes = state.shapes()
    except (OSError, ValueError, KeyError, SafetensorError):
        return None
    if config.tie_word_embeddings:
        shapes.pop("lm_head.weight", None)
    if shapes != expected_shapes(config):
        return None
    rotary = default_rotary(config.rope_parameters["rope_theta"], shape_in(config).head_dim, device)
    ends = end_tokens(_read_json(folder / "generation_config.json"), config, str(folder))
    return stored_llama(str(folder), config, state, shapes, rotary, ends)


def stored_llama(
    name: str,
    config: Any,
    state: Mapping[str, torch.Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    rotary: RotaryTable,
    eos_token_ids: tuple[int, ...],
) -> StoredLlama:
    """A model of weights that have the expected shapes; they are read layer by layer."""
    shape = shape_in(config)
    weights = weights_in(state, shape.num_layers, config.tie_word_embeddings)
    return StoredLlama(
        name=name,
        eos_token_ids=eos_token_ids,
        vocab_size=shape.vocab_size,
        max_positions=config.max_position_embeddings,
        num_parameters=sum(map(math.prod, shapes.values())),
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        input_embeddings=weights.embedding,
        shape=shape,
        weights=weights,
        rotary=rotary,
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
    told = _in_todays_words(told)
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


def _in_todays_words(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration with the names that transformers has used since its version 5."""
    found = {"dtype": told.get("torch_dtype"), "head_dim": None} | dict(told)
    if "rope_theta" in told and told.get("rope_scaling") is None:
        found.setdefault("rope_parameters", {"rope_type": "default", "rope_theta": told["rope_theta"]})
    return found


def _files(folder: Path) -> list[Path]:
    whole = folder / "model.safetensors"
    if whole.is_file():
        return [whole]
    index: Mapping[str, Any] = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    return [folder / name for name in sorted(set(index["weight_map"].values()))]


def expected_shapes(
    config: Any, qkv_bias: bool = False, output_bias: bool = False, head_norms: bool = False
) -> dict[str, tuple[int, ...]]:
    """All weights that there must be, with their shapes.

    Args:
        config: What a configuration says.
        qkv_bias, output_bias: Whether the projections before and after the attention have biases.
        head_norms: Whether each head's queries and keys have norms.
    """
    shape = shape_in(config)
    hidden, inner = shape.hidden_size, config.intermediate_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if qkv_bias:
        layer |= {f"self_attn.{part}_proj.bias": (size,) for part, size in zip("qkv", (queries, keys, keys), strict=True)}
    if output_bias:
        layer["self_attn.o_proj.bias"] = (hidden,)
    if head_norms:
        layer |= {f"self_attn.{part}_norm.weight": (shape.head_dim,) for part in "qk"}
    wanted: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (shape.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tie_word_embeddings:
        wanted["lm_head.weight"] = (shape.vocab_size, hidden)
    for index in range(shape.num_layers):
        wanted |= {f"model.layers.{index}.{name}": size for name, size in layer.items()}
    return wanted
