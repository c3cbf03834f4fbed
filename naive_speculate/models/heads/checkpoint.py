"""Loads draft heads in three layouts: that of the EAGLE authors, that of vLLM's speculators, and
our own; block drafters; and assistants.

The first two name a layer's weights as transformers does: `midlayer.*` (the authors) or
`layers.0.*` (speculators, which may have more layers). Other tensors are `fc.weight`,
`norm.weight` and `lm_head.weight`. A head with fewer tokens than its target also has `d2t`
(target token = i + d2t[i]) and `t2d` (which target tokens it has). Without `embed_tokens.weight`
the target's embeddings are shared. The authors' configuration is flat; speculators' has the
layer's sizes in `transformer_layer_config`.

Our own layout is speculators' with `state_proj.weight`: states are added to the embeddings (see
`HeadWeights`), and `hidden_norm.weight` is outside the layers. The tensors decide what a head is
and how many layers it has. Configurations are unreliable: the authors' are named
`LlamaForCausalLM`, and one declares the 40 layers of its target.

EAGLE-3.1 adds two options: `fc_norm.{i}.weight` norms the hidden state of each target layer
before `fc.weight`, and `norm_output` feeds back the state after `norm.weight`.

A block drafter has `fc.weight`, `hidden_norm.weight`, Qwen3 or Llama layers and `norm.weight`;
embeddings and output matrix are the target's, but it may have an `lm_head.weight` of its own,
with `d2t` and `t2d` as above. For the two layouts of its options see `block_files.py`, for Gemma
4's assistants `assistant_files.py`.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from naive_speculate.models.files import load_error
from naive_speculate.models.foreign.assistant import AssistantHead
from naive_speculate.models.foreign.assistant_files import assistant_in
from naive_speculate.models.foreign.block import BlockHead
from naive_speculate.models.foreign.block_files import (
    Take,
    block_options,
    chain_in,
    convolutions_in,
    mask_token,
)
from naive_speculate.models.foreign.keys import BLOCK_KINDS, check_keys
from naive_speculate.models.foreign.parallel import ParallelHead
from naive_speculate.models.heads.files import (
    block_layers,
    declares_head,
    kind_of,
    option,
    read_config,
    read_tensors,
    target_layers,
)
from naive_speculate.models.heads.model import DraftHead
from naive_speculate.models.heads.weights import HeadWeights
from naive_speculate.models.llama.rounded import floats, is_rounded, width_of
from naive_speculate.models.llama.stored import LazyTensors, full_config
from naive_speculate.models.llama.weights import (
    LlamaShape,
    RotaryTable,
    default_rotary,
    is_supported,
    layer_in,
    layer_shapes,
    shape_in,
)

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_IGNORED = (
    "verifier_norm.weight",
    "verifier_lm_head.weight",
    ".self_attn.rotary_emb.inv_freq",
)  # ends of names
_IGNORED_PARTS = ("confidence_head.",)  # a prediction of acceptance, which nothing here needs
_LAYER = re.compile(r"layers\.(\d+)\.")
_FC_NORM = re.compile(r"fc_norm\.\d+\.weight")
_log = logging.getLogger(__name__)


def load_head(
    source: str | Path,
    target: Any,
    device: torch.device,
    dtype: torch.dtype | None = None,
    executor: str = "torch",
    in_8_bits: bool = False,
) -> DraftHead | BlockHead | ParallelHead | AssistantHead:
    """Load a draft head, a block drafter, a head that drafts in parallel, or an assistant.

    Args:
        source: Hub id or local folder.
        target: The model that it drafts for. Its `num_layers`, `input_embeddings` and
            `output_embeddings` fill what the checkpoint leaves open.
        device: Where it computes: the device of the target's hidden states.
        dtype: None for the dtype of the stored weights, or float32 in ONNX Runtime.
        executor: "torch" or "onnx", of a draft head; the others run in torch.
        in_8_bits: Whether to round a draft head's matrices, with "onnx".

    Raises:
        ValueError: In one line, naming `head` and the fault.
    """
    name = str(source)
    try:
        return _load(name, target, device, dtype, executor, in_8_bits)
    except KeyError as error:
        raise load_error("head", name, ValueError(f"{error.args[0]} is missing")) from None
    except Exception as error:  # transformers and ONNX Runtime raise any kind for odd values
        raise load_error("head", name, error) from None


def _load(
    name: str,
    target: Any,
    device: torch.device,
    dtype: torch.dtype | None,
    executor: str,
    in_8_bits: bool,
) -> DraftHead | BlockHead | ParallelHead | AssistantHead:
    config = read_config(name)
    kind = kind_of(config)
    check_keys(config, kind)
    stored = {
        key: tensor
        for key, tensor in read_tensors(name).items()
        if not key.startswith(_IGNORED_PARTS) and not key.endswith(_IGNORED)
    }
    block, first = kind in BLOCK_KINDS, "pre_projection" if kind == "assistant" else "fc"
    _check_tensors(stored, config, block or kind == "assistant")
    dtype = dtype or (torch.float32 if executor == "onnx" else stored[f"{first}.weight"].dtype)
    tensors = {
        key: t.to(device, dtype) if t.is_floating_point() else t for key, t in stored.items()
    }
    if kind == "assistant":
        assistant = assistant_in(_taker(tensors), config, target, name)
        _check_all_read(tensors)
        return assistant
    layer_config = _layer_config(config, _num_layers(tensors))
    weights = _weights(tensors, config, layer_config, target, block)
    layers = (block_layers if block else target_layers)(config, weights, target)
    shape = _shape(layer_config, weights)
    rotary = _rotary(layer_config, shape.head_dim, device)
    take, known = _taker(tensors), len(weights.embedding)
    if block:
        options = block_options(config, kind, known)
        chain = chain_in(take, config, kind, weights)
        convolutions = convolutions_in(take, config, kind, weights)
        _check_all_read(tensors)
        return BlockHead(weights, shape, rotary, layers, name, options, chain, convolutions)
    if kind == "peagle":
        mask = mask_token(config, known)
        state = take("mask_hidden", 1, 1, weights.fuse.shape[1]).flatten()
        _check_all_read(tensors)
        return ParallelHead(weights, shape, rotary, layers, name, mask, state)
    _check_all_read(tensors)
    if in_8_bits and executor == "onnx":
        weights = weights.rounded()
    return DraftHead(weights, shape, rotary, layers, name, executor)


def _check_tensors(
    stored: Mapping[str, torch.Tensor], config: Mapping[str, Any], block: bool
) -> None:
    """Raise a `ValueError` if the tensors are no drafter's, or quantised."""
    for part in ("fc.weight", "hidden_norm.weight"):  # EAGLE-1 and EAGLE-2 have the first alone
        if block or declares_head(config) or any(key.endswith(part) for key in stored):
            continue
        raise ValueError(f"it is no EAGLE-3 head and none of `python -m train`: it has no {part}")
    for key, tensor in stored.items():
        if key.endswith("weight") and not tensor.is_floating_point():
            raise ValueError(f"{key} is {tensor.dtype}; quantised heads are not supported")


def _check_all_read(tensors: Mapping[str, torch.Tensor]) -> None:
    if tensors:
        raise ValueError(f"it holds {min(tensors)}, which is not supported")


def _taker(tensors: dict[str, torch.Tensor]) -> Take:
    def take(name: str, *shape: int) -> torch.Tensor:
        return _checked(tensors, {name: shape})[name]

    return take


def _num_layers(tensors: Mapping[str, torch.Tensor]) -> int:
    return 1 + max((int(match[1]) for key in tensors if (match := _LAYER.match(key))), default=0)


def _layer_config(config: Mapping[str, Any], num_layers: int) -> "PretrainedConfig":
    flat = dict(config.get("transformer_layer_config") or config)
    if (declared := flat.get("num_hidden_layers")) != num_layers:
        _log.info("the head has %d layers, its configuration declares %s", num_layers, declared)
        flat["num_hidden_layers"] = num_layers
        flat.pop("layer_types", None)  # they belong to the declared layers
    full: PretrainedConfig | None = full_config(flat)
    if full is None:
        from transformers import CONFIG_MAPPING  # slow to import

        if flat.get("model_type") not in CONFIG_MAPPING:  # some name the method; the tensors decide
            flat["model_type"] = "llama"
        full = CONFIG_MAPPING[flat["model_type"]].from_dict(flat)
    if (obstacle := is_supported(full)) is not None:
        raise ValueError(obstacle)
    return full


def _shape(config: Any, weights: HeadWeights) -> LlamaShape:
    kinds = getattr(config, "layer_types", None) or []
    if len(kinds) != len(weights.layers):  # they are the target's
        kinds = [None] * len(weights.layers)
    windows = tuple(
        config.sliding_window if kind == "sliding_attention" else None for kind in kinds
    )
    return replace(shape_in(config), vocab_size=len(weights.head), windows=windows)


def _rotary(config: "PretrainedConfig", head_dim: int, device: torch.device) -> RotaryTable:
    rope: Mapping[str, Any] = config.rope_parameters or {}
    if rope.get("rope_type") == "default" and "rope_theta" in rope:
        return default_rotary(rope["rope_theta"], head_dim, device)
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding  # slow to import

    rotary = LlamaRotaryEmbedding(cast(Any, config))  # Qwen3's is the same
    return RotaryTable(rotary.inv_freq.to(device), rotary.attention_scaling)


def _weights(
    tensors: dict[str, torch.Tensor],
    config: Mapping[str, Any],
    layer: "PretrainedConfig",
    target: Any,
    block: bool,
) -> HeadWeights:
    t2d = tensors.pop("t2d", None)
    adds = "state_proj.weight" in tensors and not block
    before_residual = bool(option(config, "norm_before_residual"))
    if adds and before_residual:
        raise ValueError(
            "norm_before_residual is not supported for a head that adds states to embeddings"
        )
    take = _checked(tensors, _shapes(layer, adds or block))
    embedding = tensors.pop("embed_tokens.weight", None)
    if embedding is None:
        embedding = _targets_matrix(target, "input_embeddings", layer.hidden_size)
        if not is_rounded(embedding) or block:
            embedding = floats(embedding).to(tensors["fc.weight"])
    elif embedding.dim() != 2 or embedding.shape[1] != layer.hidden_size:
        raise ValueError(
            f"embed_tokens.weight is {list(embedding.shape)}, hidden_size is {layer.hidden_size}"
        )
    if block and "lm_head.weight" not in tensors:
        head = floats(_targets_matrix(target, "output_embeddings", layer.hidden_size)).to(
            tensors["fc.weight"]
        )
    elif layer.tie_word_embeddings and "lm_head.weight" not in tensors:
        head = embedding
    else:
        head = take["lm_head.weight"]
    token_ids = _token_ids(take.get("d2t"), t2d, len(head), len(embedding))
    return HeadWeights(
        embedding=embedding,
        input_norm=take.get("input_norm.weight"),
        fuse=take["fc.weight"],
        hidden_norm=take["hidden_norm.weight" if adds or block else "layers.0.hidden_norm.weight"],
        state_projection=take.get("state_proj.weight"),
        layers=[layer_in(take, f"layers.{index}.") for index in range(layer.num_hidden_layers)],
        norm=take["norm.weight"],
        head=head,
        token_ids=None if token_ids is None else token_ids.to(head.device),
        norm_before_residual=before_residual,
        layer_norms=_layer_norms(take, bool(option(config, "fc_norm"))),
        norm_output=_norms_output(config),
    )


def _norms_output(config: Mapping[str, Any]) -> bool:
    """Whether the state that is fed back is taken after the norm; warns where the file may not
    mean it."""
    norms = bool(option(config, "norm_output"))
    if norms and "speculators_model_type" not in config:
        _log.warning(
            "the head's configuration has norm_output: true. SpecForge 0.2.0 writes this for heads"
            " that it trained without it: if fewer than expected draft tokens are accepted, compare"
            " with norm_output: false in config.json"
        )
    return norms


def _shapes(config: Any, adds: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors that the configuration determines; -1 for any number."""
    d = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (d, -1),
        "lm_head.weight": (-1, d),
        "norm.weight": (d,),
        "state_proj.weight": (d, d),
        "hidden_norm.weight": (d,),
        "layers.0.hidden_norm.weight": (d,),
    }
    for index in range(config.num_hidden_layers):
        read = d if adds or index else 2 * d
        shapes |= {
            f"layers.{index}.self_attn.{part}_norm.weight": (shape_in(config).head_dim,)
            for part in "qk"
        }
        shapes |= {
            f"layers.{index}.{name}": size for name, size in layer_shapes(config, read).items()
        }
    return shapes


def _checked(
    tensors: dict[str, torch.Tensor], shapes: Mapping[str, tuple[int, ...]]
) -> LazyTensors:
    """The tensors of a checkpoint; reading one checks its shape and removes it from the
    dictionary."""

    def read(name: str) -> torch.Tensor:
        tensor = tensors.pop(name)
        shape = shapes.get(name, (-1,) * tensor.dim())
        if len(shape) != tensor.dim() or any(
            size not in (-1, got) for size, got in zip(shape, tensor.shape, strict=True)
        ):
            shown = str(list(shape)).replace("-1", "any")
            raise ValueError(f"{name} is {list(tensor.shape)}, its configuration requires {shown}")
        return tensor

    return LazyTensors(tensors, read)


def _layer_norms(take: LazyTensors, declared: bool) -> torch.Tensor | None:
    names = [name for name in take if _FC_NORM.fullmatch(name)]
    if not names and not declared:
        return None
    norms = [take[f"fc_norm.{index}.weight"] for index in range(max(1, len(names)))]
    if any(norm.dim() != 1 or norm.shape != norms[0].shape for norm in norms):
        raise ValueError(
            f"fc_norm has weights of shapes {', '.join(str(list(norm.shape)) for norm in norms)}"
        )
    return torch.stack(norms)


def _targets_matrix(target: Any, name: str, width: int) -> torch.Tensor:
    """The target's `input_embeddings` or `output_embeddings`, which a head of its width shares;
    rounded if the target's are."""
    what, matrix = name.replace("_", " "), getattr(target, name, None)
    if matrix is None:
        raise ValueError(
            f"it has no {what} of its own, and {type(target).__name__} has no {name} to share"
        )
    if width_of(matrix) != width:
        raise ValueError(
            f"it has no {what} of its own; its width is {width}, the target's is {width_of(matrix)}"
        )
    detached: torch.Tensor = matrix.detach()
    return detached


def _token_ids(
    d2t: torch.Tensor | None, t2d: torch.Tensor | None, count: int, vocab_size: int
) -> torch.Tensor | None:
    """The target token of each of the head's `count` tokens; None where they are the same."""
    if d2t is None:
        if count != vocab_size:
            raise ValueError(
                f"d2t is missing: lm_head.weight has {count} tokens, embed_tokens.weight"
                f" {vocab_size}"
            )
        return None
    if d2t.shape != (count,):
        raise ValueError(f"d2t is {list(d2t.shape)}, lm_head.weight has {count} tokens")
    token_ids = torch.arange(count) + d2t.to(torch.int64)
    if count and not 0 <= int(token_ids.min()) <= int(token_ids.max()) < vocab_size:
        raise ValueError(f"d2t leads to token {int(token_ids.max())}, the target has {vocab_size}")
    if len(token_ids.unique()) != count:
        raise ValueError("d2t leads to a token twice")
    if t2d is not None and (
        len(t2d) != vocab_size
        or t2d.bool().nonzero().flatten().tolist() != sorted(token_ids.tolist())
    ):
        raise ValueError(
            f"t2d and d2t do not agree on which of the target's {vocab_size} tokens the head has"
        )
    return None if count == vocab_size and not bool(d2t.any()) else token_ids
