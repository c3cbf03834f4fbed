"""Reads models from GGUF files: dequantised, for our own executors.

The Llama family is read here. transformers reads other families, but drops llama.cpp's scaling
of rotary positions.
"""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import torch

from naive_speculate.infer.end_tokens import end_tokens
from naive_speculate.models.gguf.metadata import StoredTensor, read_header
from naive_speculate.models.llama.rounded import Rounding
from naive_speculate.models.llama.stored import (
    LazyTensors,
    StoredLlama,
    expected_shapes,
    stored_llama,
)
from naive_speculate.models.llama.weights import RotaryTable, default_rotary

_FAMILIES = ("llama", "qwen2", "qwen3")  # llama.cpp's names; Mistral is a "llama" there
_PERMUTED = (  # the family whose rotary pairs llama.cpp stores adjacent, not half a head apart
    "llama"
)
_FACTORS = "rope_freqs.weight"
_READ = {
    *("block_count", "context_length", "feed_forward_length", "expert_count", "tensor_data_layout"),
    *(f"attention.{key}" for key in ("head_count", "head_count_kv", "key_length")),
    *("attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.freq_base"),
    *("rope.scale_linear", "rope.scaling.type", "rope.scaling.factor"),
    # of scalings that are refused, and of experts
    *("rope.scaling.original_context_length", "rope.scaling.finetuned", "expert_used_count"),
}
"""Keys of an architecture that are read, or say nothing about the model's numbers."""
_SCALES = ("logit_scale", "residual_scale", "embedding_scale")
_NEUTRAL = {
    **dict.fromkeys(_SCALES, 1.0),
    **dict.fromkeys(["attn_logit_softcapping", "final_logit_softcapping"], 0.0),
    **dict.fromkeys(["rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor"], 1.0),
    **dict.fromkeys(["attention.clamp_kqv", "attention.max_alibi_bias"], 0.0),
    **dict.fromkeys(["nextn_predict_layers", "leading_dense_block_count"], 0),
    "attention.causal": True,
    "attention.sliding_window": 0,
    "use_parallel_residual": False,
}
"""Others, with the value that changes nothing."""
_ENDS = [f"tokenizer.ggml.{end}_token_id" for end in ("eos", "eot", "eom")]
# weights that are dequantised at a time; the intermediate values fit a core's cache
_AT_ONCE = 2**16


def read_gguf_llama(
    path: Path, device: torch.device, dtype: torch.dtype, rounding: Rounding | None = None
) -> StoredLlama | None:
    """The model of a file, with its weights on a device in a dtype; None if it is not of the
    Llama family. `rounding`: see `read_llama`. Raises `ValueError` if the file is damaged or not
    supported; `OSError` if it cannot be read."""
    metadata, tensors = read_header(path)
    if metadata.get("general.architecture") not in _FAMILIES:
        return None
    if metadata.get("split.count", 1) > 1:
        raise ValueError(
            "it is one of several parts; llama.cpp's `llama-gguf-split --merge` makes one file of"
            " them"
        )
    try:
        config = _config(metadata, tensors)
        _check_keys(metadata, config)
        rotary = _rotary(metadata, config, path, tensors.pop(_FACTORS, None), device)
        renamed = _renamed(config, tensors)
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing") from None
    heads = (
        {"q": config.num_attention_heads, "k": config.num_key_value_heads}
        if config.model_type == _PERMUTED
        else {}
    )

    def read(name: str) -> torch.Tensor:
        tensor = dequantised(path, renamed[name], dtype)
        if (part := next((part for part in heads if f".{part}_proj." in name), None)) is not None:
            pairs = tensor.view(heads[part], -1, 2, *tensor.shape[1:])
            tensor = pairs.transpose(1, 2).reshape(tensor.shape)
        return tensor.to(device)

    state = LazyTensors({name: tensor.shape for name, tensor in renamed.items()}, read)
    ends = end_tokens(None, config, str(path))
    return stored_llama(str(path), config, state, rotary, ends, rounding)


def dequantised(
    path: Path, tensor: StoredTensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """A tensor of a file. Raises `ValueError` if its type is not supported, or the file is
    truncated."""
    try:
        kind = gguf.GGMLQuantizationType(tensor.kind)
        block, size = gguf.GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError):
        raise ValueError(f"it has weights of type {tensor.kind}, which is not supported") from None
    if tensor.shape and tensor.shape[-1] % block:
        raise ValueError(f"it has rows of {tensor.shape[-1]} weights in blocks of {block}")
    values = np.empty(math.prod(tensor.shape), np.float32)
    with open(path, "rb") as file:
        file.seek(tensor.offset)
        for begin in range(0, len(values), _AT_ONCE):
            part = values[begin : begin + _AT_ONCE]
            stored = np.fromfile(file, np.uint8, len(part) // block * size)
            if len(stored) < len(part) // block * size:
                raise ValueError("it is damaged, or was not copied in full")
            try:
                part[:] = gguf.quants.dequantize(stored, kind)
            except NotImplementedError:
                raise ValueError(
                    f"it has weights of type {kind.name}, which is not supported"
                ) from None
    return torch.from_numpy(values.reshape(tensor.shape)).to(dtype)


def weights_kind(path: Path) -> str:
    """llama.cpp's name of the type of most weights, such as "Q4_1"."""
    sizes = Counter[int]()
    for tensor in read_header(path)[1].values():
        sizes[tensor.kind] += math.prod(tensor.shape)
    kind = gguf.GGMLQuantizationType(sizes.most_common(1)[0][0])
    return kind.name


def ends_in(metadata: Mapping[str, Any]) -> list[int]:
    """A file's end-of-sequence tokens; llama.cpp ends a text at each."""
    return list(dict.fromkeys(metadata[key] for key in _ENDS if key in metadata))


def unread_by_transformers(path: Path) -> str | None:
    """The part of a file that transformers' reader would ignore; None if there is none."""
    metadata, tensors = read_header(path)
    if _FACTORS in tensors:
        return f"its rotary frequencies have factors ({_FACTORS})"
    family = metadata.get("general.architecture")
    if family in _FAMILIES:
        _check_keys(metadata, _config(metadata, tensors))
    for name in _SCALES:
        key = f"{family}.{name}"
        if metadata.get(key, _NEUTRAL[name]) != _NEUTRAL[name]:
            return f"it sets {key} to {metadata[key]!r:.40}"
    scaling, factor = _scaling(metadata, f"{family}.rope.")
    unscaled = scaling == "none" or (scaling == "linear" and factor == 1)
    return None if unscaled else f"its rotary positions are scaled ({scaling})"


def _check_keys(metadata: Mapping[str, Any], config: Any) -> None:
    """Refuse every key of the architecture that is not read, unless its value changes nothing."""
    neutral = {
        "attention.scale": config.head_dim**-0.5,
        "attention.value_length": config.head_dim,
        "embedding_length": config.hidden_size,
        "vocab_size": config.vocab_size,
    }
    at = config.model_type + "."
    for key, value in metadata.items():
        name = key.removeprefix(at)
        if name == key or name in _READ or value == _NEUTRAL.get(name, neutral.get(name, _READ)):
            continue
        close = name in neutral and math.isclose(value, neutral[name], rel_tol=1e-4)
        wide = name == "attention.sliding_window" and value >= config.max_position_embeddings
        if not close and not wide:
            raise ValueError(f"it sets {key} to {value!r:.40}, which is not supported")


def _scaling(metadata: Mapping[str, Any], at: str) -> tuple[str, float]:
    """Kind and factor of the scaling of rotary positions: without a kind it is linear, as in
    llama.cpp (llama-model.cpp); older files have its factor as `scale_linear`."""
    factor = metadata.get(at + "scaling.factor", metadata.get(at + "scale_linear", 0.0))
    return metadata.get(at + "scaling.type", "linear"), factor or 1.0


def _config(metadata: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> SimpleNamespace:
    """A file's configuration under transformers' names; a `KeyError` if a value is missing."""
    family = metadata["general.architecture"]
    at = family + "."
    vocab_size, hidden_size = tensors["token_embd.weight"].shape
    heads = metadata[at + "attention.head_count"]
    kv_heads = metadata.get(at + "attention.head_count_kv", heads)
    if isinstance(heads, list) or isinstance(kv_heads, list):
        raise ValueError("its layers have different numbers of heads, which are not supported")
    if metadata.get(at + "expert_count", 0):
        raise ValueError("it has experts, which are not supported")
    return SimpleNamespace(
        model_type=family,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=metadata[at + "feed_forward_length"],
        num_hidden_layers=metadata[at + "block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=metadata.get(at + "attention.key_length", hidden_size // heads),
        rms_norm_eps=metadata[at + "attention.layer_norm_rms_epsilon"],
        max_position_embeddings=metadata[at + "context_length"],
        eos_token_id=ends_in(metadata),
        tie_word_embeddings="output.weight" not in tensors,
    )


def _rotary(
    metadata: Mapping[str, Any],
    config: Any,
    path: Path,
    factors: StoredTensor | None,
    device: torch.device,
) -> RotaryTable:
    at = config.model_type + ".rope."
    covered = metadata.get(at + "dimension_count", config.head_dim)
    scaling, factor = _scaling(metadata, at)
    if covered != config.head_dim or scaling not in ("none", "linear"):
        what = (
            f"are scaled by {scaling!r}"
            if covered == config.head_dim
            else "cover a part of each head"
        )
        raise ValueError(f"its rotary positions {what}, which is not supported")
    factor = factor if scaling == "linear" else 1.0
    slower = factor if factors is None else factor * dequantised(path, factors)
    return default_rotary(metadata.get(at + "freq_base", 10000.0), config.head_dim, device, slower)


def _renamed(config: Any, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors by transformers' names."""
    names = gguf.get_tensor_name_map(
        gguf.MODEL_ARCH[config.model_type.upper()], config.num_hidden_layers
    )
    has = {
        part: f"blk.0.{part}" in tensors
        for part in ("attn_q.bias", "attn_output.bias", "attn_q_norm.weight")
    }
    renamed: dict[str, StoredTensor] = {}
    left = dict(tensors)
    for name, shape in expected_shapes(config, *has.values()).items():
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias")) or name
        tensor = renamed[name] = left.pop(theirs)
        if tensor.shape != shape:
            raise ValueError(
                f"{theirs} is {list(tensor.shape)}, its metadata require {list(shape)}"
            )
    if left:
        raise ValueError(f"it holds {min(left)}, which is not supported")
    return renamed
