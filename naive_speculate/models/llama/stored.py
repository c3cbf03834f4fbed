"""Reads a Llama model from a folder without transformers' model classes, whose import dominates
the start-up time.

Only folders with a complete, expected configuration are read here; transformers reads all others.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from naive_speculate.infer.end_tokens import end_tokens
from naive_speculate.models.files import tensor_files
from naive_speculate.models.llama.rounded import Basis, Rounding, rounded, turned_columns
from naive_speculate.models.llama.weights import (
    LlamaLayer,
    LlamaShape,
    LlamaWeights,
    RotaryTable,
    default_rotary,
    is_supported,
    layer_shapes,
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
"""Fields that a configuration needs to be read without transformers."""
_SIZES = [name for name in REQUIRED if name.endswith("_size") or name.startswith(("num_", "max_"))]


@dataclass
class StoredLlama:
    """A model's weights and the attributes of its `LlamaLanguageModel`."""

    name: str
    eos_token_ids: tuple[int, ...]
    max_positions: int | None
    num_parameters: int
    shape: LlamaShape
    weights: LlamaWeights
    rotary: RotaryTable

    @classmethod
    def of(cls, model: Any, rounding: Rounding | None = None) -> "StoredLlama":
        """The weights of a model of transformers; tensors that are neither fused nor rounded
        share its memory. `rounding`: see `read_llama`. Raises `ValueError` if its configuration is
        not supported, with the reason."""
        config, name = model.config, model.name_or_path or type(model).__name__
        if (reason := is_supported(config)) is not None:
            raise ValueError(f"model {name}: {reason}")
        rotary, weights = model.model.rotary_emb, model.state_dict()
        state = LazyTensors(
            {key: tensor.shape for key, tensor in weights.items()}, weights.__getitem__
        )
        tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
        return cls(
            name=name,
            eos_token_ids=end_tokens(getattr(model, "generation_config", None), config, name),
            max_positions=config.max_position_embeddings,
            num_parameters=sum(parameter.numel() for parameter in model.parameters()),
            shape=shape_in(config),
            weights=weights_of(state, config.num_hidden_layers, tied, rounding),
            rotary=RotaryTable(rotary.inv_freq, rotary.attention_scaling),
        )


def stored_dtype(folder: Path) -> torch.dtype | None:
    """The dtype of the stored weights; None for a folder that cannot be read here."""
    config = _config(folder)
    return None if config is None else getattr(torch, str(config.dtype), None)


class LazyTensors(Mapping[str, torch.Tensor]):
    """Tensors by name, with their shapes. Each is read on access, so that only the tensors in
    use take memory."""

    def __init__(self, shapes: Mapping[str, Any], read: Callable[[str], torch.Tensor]) -> None:
        self.shapes, self._read = shapes, read

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self.shapes:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes  # without reading it

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def read_llama(
    folder: Path, device: torch.device, dtype: torch.dtype, rounding: Rounding | None = None
) -> StoredLlama | None:
    """The model in a folder, with its weights on a device in a dtype; None where transformers
    must read it. `rounding`: whether its matrices are rounded."""
    config = _config(folder)
    if config is None:
        return None
    try:
        opened = [safe_open(path, "pt") for path in tensor_files(str(folder.absolute()))]
        files = {name: file for file in opened for name in file.keys()}  # noqa: SIM118
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name, file in files.items()}
    except (OSError, ValueError, KeyError, SafetensorError):
        return None
    if config.tie_word_embeddings:
        shapes.pop("lm_head.weight", None)
    if shapes != expected_shapes(config):
        return None
    rotary = default_rotary(config.rope_parameters["rope_theta"], shape_in(config).head_dim, device)
    ends = end_tokens(_read_json(folder / "generation_config.json"), config, str(folder))
    # A copy: a view would keep the whole mapped file in memory.
    state = LazyTensors(
        shapes, lambda name: files[name].get_tensor(name).to(device, dtype, copy=True)
    )
    return stored_llama(str(folder), config, state, rotary, ends, rounding)


def weights_of(
    state: Mapping[str, torch.Tensor], num_layers: int, tied: bool, rounding: Rounding | None
) -> LlamaWeights:
    """The weights, rounded or not. Rounded layers read and add to the stream in the coordinates
    of a basis, their norms are part of the matrices after them, and what the MLP multiplies last
    is turned."""
    if rounding is None:
        return weights_in(state, num_layers, tied)
    names = [f"model.layers.{index}." for index in range(num_layers)]
    basis = Basis.of(
        state["model.embed_tokens.weight"],
        (
            (state[f"{name}{norm}_layernorm.weight"], state[f"{name}{matrix}_proj.weight"])
            for name in names
            for norm, matrix in (("input", "self_attn.o"), ("post_attention", "mlp.down"))
        ),
    )
    read_so_far = 0

    def change(layer: LlamaLayer) -> LlamaLayer:
        nonlocal read_so_far
        read_so_far += 1
        if rounding.progress is not None:
            rounding.progress(read_so_far / num_layers)
        ones = torch.ones_like(layer.mlp_norm)
        bias = layer.output_bias
        return replace(
            layer,
            attention_norm=ones,
            qkv=basis.reading(layer.qkv, layer.attention_norm),
            output=rounded(basis.writing(layer.output)),
            output_bias=None if bias is None else basis.writing(bias),
            mlp_norm=ones,
            gate_up=basis.reading(layer.gate_up, layer.mlp_norm),
            down=rounded(basis.writing(layer.down), change=turned_columns),
        )

    weights = weights_in(state, num_layers, tied, change)
    embedding = rounded(weights.embedding)
    is_tied = weights.head is weights.embedding
    return replace(
        weights,
        embedding=embedding,
        head=basis.reading(weights.head, weights.norm),
        norm=torch.ones_like(weights.norm),
        basis=basis,
        output=embedding if is_tied else rounded(weights.head),
    )


def stored_llama(
    name: str,
    config: Any,
    state: LazyTensors,
    rotary: RotaryTable,
    eos_token_ids: tuple[int, ...],
    rounding: Rounding | None = None,
) -> StoredLlama:
    """A model from weights of the expected shapes; they are read layer by layer, and rounded."""
    shape = shape_in(config)
    return StoredLlama(
        name=name,
        eos_token_ids=eos_token_ids,
        max_positions=config.max_position_embeddings,
        num_parameters=sum(map(math.prod, state.shapes.values())),
        shape=shape,
        weights=weights_of(state, shape.num_layers, config.tie_word_embeddings, rounding),
        rotary=rotary,
    )


def _config(folder: Path) -> Any:
    values = _read_json(folder / "config.json")
    return (
        full_config(values)
        if values is not None and values.get("architectures") == ["LlamaForCausalLM"]
        else None
    )


def _read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object of a file; None where it is missing or damaged. Raises `ValueError` if it
    holds something else."""
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return values


def full_config(values: Mapping[str, Any]) -> Any:
    """A Llama's configuration from a file's values, without transformers' class; None if it is
    incomplete or unexpected."""
    if values.get("model_type") != "llama":
        return None
    values = _under_current_names(values)
    if (
        any(name not in values for name in REQUIRED)
        or values.get("attention_bias")
        or "auto_map" in values
    ):
        return None
    if any(values[name] is None for name in REQUIRED if name not in ("eos_token_id", "head_dim")):
        return None
    if type(values["tie_word_embeddings"]) is not bool:
        return None
    if any(type(values[name]) is not int or values[name] < 1 for name in _SIZES):
        return None
    config = SimpleNamespace(**values)
    rope = config.rope_parameters
    if not isinstance(rope, dict) or rope.get("rope_type") != "default" or "rope_theta" not in rope:
        return None
    return config if is_supported(config) is None else None


def _under_current_names(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration under the names of transformers 5."""
    renamed = {"dtype": values.get("torch_dtype"), "head_dim": None} | dict(values)
    if "rope_theta" in values and values.get("rope_scaling") is None:
        renamed.setdefault(
            "rope_parameters", {"rope_type": "default", "rope_theta": values["rope_theta"]}
        )
    return renamed


def expected_shapes(
    config: Any, qkv_bias: bool = False, output_bias: bool = False, head_norms: bool = False
) -> dict[str, tuple[int, ...]]:
    """All required weights, with their shapes: with or without biases of the projections before
    and after the attention, and norms of each head's queries and keys."""
    shape = shape_in(config)
    hidden, head_dim = shape.hidden_size, shape.head_dim
    queries, keys = shape.num_heads * head_dim, shape.num_kv_heads * head_dim
    layer = layer_shapes(config)
    if qkv_bias:
        layer |= {
            f"self_attn.{part}_proj.bias": (size,)
            for part, size in zip("qkv", (queries, keys, keys), strict=True)
        }
    if output_bias:
        layer["self_attn.o_proj.bias"] = (hidden,)
    if head_norms:
        layer |= {f"self_attn.{part}_norm.weight": (head_dim,) for part in "qk"}
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (shape.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (shape.vocab_size, hidden)
    for index in range(shape.num_layers):
        shapes |= {f"model.layers.{index}.{name}": size for name, size in layer.items()}
    return shapes
