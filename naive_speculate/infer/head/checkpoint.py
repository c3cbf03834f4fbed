"""Loads draft heads: the layouts of the EAGLE authors, of vLLM's speculators, and one of our own.

The first two store a layer's weights under transformers' names, as `midlayer.*` the former and `layers.0.*` the latter
(which may have more layers, as in a Llama), beside `fc.weight`, `norm.weight`, `lm_head.weight`, and for a head with fewer
tokens than its target `d2t` (offsets: the target's token is `i + d2t[i]`) and `t2d` (which of the target's tokens it
knows). Where there is no `embed_tokens.weight`, the target's embeddings serve. The authors' configuration is flat;
speculators' has the layers' numbers in `transformer_layer_config`. A head with `state_proj.weight` adds its states to the
embeddings (see `HeadWeights`); that is our own layout, otherwise as speculators', except that `hidden_norm.weight` stands
outside the layers.

Which hidden states of the target are read: `eagle_aux_hidden_state_layer_ids`, else 2, n / 2 and n - 3 of n layers. In EAGLE's
`modeling_llama_kv.py` and vLLM's `llama.py` such a number i stands for what *enters* the layer with index i, which is what
stands after i layers: the same number as in `BatchLanguageModel.forward`. SGLang and SpecForge keep them in `eagle_config`
instead, and mean what *leaves* layer i (SGLang adds 1 in `set_eagle3_layers_to_capture`).
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers.utils.hub import cached_file

from naive_speculate.infer.head.model import DraftHead
from naive_speculate.infer.head.weights import HeadWeights
from naive_speculate.infer.llama.stored import full_config
from naive_speculate.infer.llama.weights import LlamaLayer, LlamaShape, RotaryTable, default_rotary, is_supported, shape_in

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_IDS = "eagle_aux_hidden_state_layer_ids"
_IGNORED = ("verifier_norm.weight", "verifier_lm_head.weight", ".self_attn.rotary_emb.inv_freq")
"""Ends of names."""
_UNKNOWN_OPTIONS = ("fc_norm", "norm_output")
"""Of later heads; what they change is not computed here."""


def is_head(source: str | Path) -> bool:
    """Whether a folder's or a Hub repository's configuration says that it is a draft head; False where it cannot be read."""
    try:
        config = _read_config(str(source))
    except (OSError, ValueError):
        return False
    return _says_head(config)


def load_head(
    source: str | Path, target: Any, device: torch.device, dtype: torch.dtype | None = None, executor: str = "torch"
) -> DraftHead:
    """Load a draft head.

    Args:
        source: Hub id or local folder.
        target: The model that it drafts for; its `num_layers` and `input_embeddings` are used where the checkpoint leaves them
            open.
        device: Where it computes: where the target's hidden states are.
        dtype: None for the type that it is stored in.
        executor: "torch" or "onnx".

    Raises:
        ValueError: In one line, naming `head` and what is wrong.
    """
    name = str(source)
    try:
        config = _read_config(name)
        if not _says_head(config):
            raise ValueError("its configuration is not that of an EAGLE-3 head or one of `python -m train`")
        stored = _read_tensors(name)
        wanted = stored["fc.weight"].dtype if dtype is None else dtype
        kept = {key: tensor for key, tensor in stored.items() if not key.endswith(_IGNORED)}
        tensors = {key: t.to(device, wanted) if t.is_floating_point() else t for key, t in kept.items()}
        layer_config = _layer_config(config)
        weights = _weights(tensors, config, layer_config, target)
        layers = _layers(config, weights, target)
        shape = _shape(layer_config, weights)
        rotary = _rotary(layer_config, shape.head_dim, device)
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ValueError(f"head={name!r} cannot be loaded: {reason[:300]}") from None
    return DraftHead(weights, shape, rotary, layers, name, executor)


def _says_head(config: Mapping[str, Any]) -> bool:
    names = (config.get("speculators_model_type"), *(config.get("architectures") or ()))
    return any("eagle3" in str(name).lower() for name in names)


def _read_config(name: str) -> dict[str, Any]:
    path = _file(name, "config.json")
    if path is None:
        raise ValueError("there is no such folder" if _is_path(name) and not Path(name).exists() else "it has no config.json")
    found: Any = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("its config.json holds no configuration")
    return found


def _read_tensors(name: str) -> dict[str, torch.Tensor]:
    """All tensors, named as speculators names them."""
    if (single := _file(name, "model.safetensors")) is not None:
        files = [single]
    elif (index := _file(name, "model.safetensors.index.json")) is not None:
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        files = [path for shard in shards if (path := _file(name, shard)) is not None]
    else:
        pickled = " (pytorch_model.bin is not read, since it can hold any program)" if _file(name, "pytorch_model.bin") else ""
        raise ValueError(f"it has no model.safetensors{pickled}")
    tensors: dict[str, torch.Tensor] = {}
    for path in files:
        try:
            tensors |= load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path.name} is broken: {error}") from None
    return {key.removeprefix("model.").replace("midlayer.", "layers.0."): tensor for key, tensor in tensors.items()}


def _file(name: str, file: str) -> Path | None:
    if _is_path(name):
        return path if (path := Path(name).expanduser() / file).is_file() else None
    found = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
    return None if found is None else Path(found)


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or Path(name).exists()


def _layer_config(config: Mapping[str, Any]) -> "PretrainedConfig":
    kind = config.get("speculators_model_type", "eagle3")
    if kind != "eagle3":
        raise ValueError(f"speculators_model_type is {kind!r}, not 'eagle3'")
    for option in _UNKNOWN_OPTIONS:
        if config.get(option):
            raise ValueError(f"{option} is {config[option]!r}, which is not known here")
    flat = dict(config.get("transformer_layer_config") or config)
    found: PretrainedConfig | None = full_config(flat)
    if found is None:
        from transformers import CONFIG_MAPPING  # which takes seconds

        found = CONFIG_MAPPING[flat.get("model_type", "llama")].from_dict(flat)
    if (obstacle := is_supported(found)) is not None:
        raise ValueError(obstacle)
    return found


def _shape(config: Any, weights: HeadWeights) -> LlamaShape:
    kinds = getattr(config, "layer_types", None) or []
    if len(kinds) != len(weights.layers):  # they are the target's
        kinds = [None] * len(weights.layers)
    windows = tuple(config.sliding_window if kind == "sliding_attention" else None for kind in kinds)
    return replace(shape_in(config), vocab_size=len(weights.head), windows=windows)


def _rotary(config: "PretrainedConfig", head_dim: int, device: torch.device) -> RotaryTable:
    rope: Mapping[str, Any] = config.rope_parameters or {}
    if rope.get("rope_type") == "default" and "rope_theta" in rope:
        return default_rotary(rope["rope_theta"], head_dim, device)
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding  # which takes seconds

    rotary = LlamaRotaryEmbedding(cast(Any, config))  # Qwen3's is the same
    return RotaryTable(rotary.inv_freq.to(device), rotary.attention_scaling)


def _weights(
    tensors: dict[str, torch.Tensor], config: Mapping[str, Any], layer: "PretrainedConfig", target: Any
) -> HeadWeights:
    t2d = tensors.pop("t2d", None)
    adds = "state_proj.weight" in tensors
    if adds and config.get("norm_before_residual"):
        raise ValueError("norm_before_residual is not known here for a head that adds states to embeddings")
    take = _Taker(tensors, _widths(layer, adds))
    embedding = tensors.pop("embed_tokens.weight", None)
    if embedding is None:
        embedding = _targets_embedding(target, layer.hidden_size).to(tensors["fc.weight"])
    elif embedding.dim() != 2 or embedding.shape[1] != layer.hidden_size:
        raise ValueError(f"embed_tokens.weight is {list(embedding.shape)}, hidden_size is {layer.hidden_size}")
    head = take("lm_head.weight")
    token_ids = _token_ids(take.maybe("d2t"), t2d, len(head), len(embedding))
    found = HeadWeights(
        embedding=embedding,
        input_norm=take.maybe("input_norm.weight"),
        fuse=take("fc.weight"),
        hidden_norm=take("hidden_norm.weight" if adds else "layers.0.hidden_norm.weight"),
        state_projection=take.maybe("state_proj.weight"),
        layers=[_layer(take, f"layers.{index}.") for index in range(layer.num_hidden_layers)],
        norm=take("norm.weight"),
        head=head,
        token_ids=None if token_ids is None else token_ids.to(head.device),
        norm_before_residual=bool(config.get("norm_before_residual", False)),
    )
    if tensors:
        raise ValueError(f"it holds {min(tensors)}, which is not known here")
    return found


def _widths(config: Any, adds: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors whose shape the configuration says; -1 for any number.

    Args:
        adds: Whether states are added to embeddings; else the first layer reads both side by side.
    """
    d, head_dim = config.hidden_size, shape_in(config).head_dim
    heads, kv = config.num_attention_heads * head_dim, config.num_key_value_heads * head_dim
    mlp = config.intermediate_size
    widths: dict[str, tuple[int, ...]] = {
        "fc.weight": (d, -1),
        "lm_head.weight": (-1, d),
        "norm.weight": (d,),
        "state_proj.weight": (d, d),
        "hidden_norm.weight": (d,),
        "layers.0.hidden_norm.weight": (d,),
    }
    for index in range(config.num_hidden_layers):
        at, read = f"layers.{index}.", d if adds or index else 2 * d
        widths |= {
            f"{at}input_layernorm.weight": (d,),
            f"{at}post_attention_layernorm.weight": (d,),
            f"{at}self_attn.q_proj.weight": (heads, read),
            f"{at}self_attn.k_proj.weight": (kv, read),
            f"{at}self_attn.v_proj.weight": (kv, read),
            f"{at}self_attn.o_proj.weight": (d, heads),
            f"{at}mlp.gate_proj.weight": (mlp, d),
            f"{at}mlp.up_proj.weight": (mlp, d),
            f"{at}mlp.down_proj.weight": (d, mlp),
        }
    return widths


class _Taker:
    """Takes tensors out of a checkpoint, checked against the shapes that they must have."""

    def __init__(self, tensors: dict[str, torch.Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.tensors, self.shapes = tensors, shapes

    def __call__(self, name: str) -> torch.Tensor:
        tensor = self.tensors.pop(name)
        wanted = self.shapes.get(name, (-1,) * tensor.dim())
        if len(wanted) != tensor.dim() or any(size not in (-1, got) for size, got in zip(wanted, tensor.shape, strict=True)):
            shown = str(list(wanted)).replace("-1", "any")
            raise ValueError(f"{name} is {list(tensor.shape)}, its configuration says {shown}")
        return tensor

    def maybe(self, name: str) -> torch.Tensor | None:
        return self(name) if name in self.tensors else None


def _layer(take: _Taker, prefix: str) -> LlamaLayer:
    at = f"{prefix}self_attn."
    biases = [take.maybe(f"{at}{part}_proj.bias") for part in "qkv"]
    known = [bias for bias in biases if bias is not None]
    return LlamaLayer(
        attention_norm=take(f"{prefix}input_layernorm.weight"),
        qkv=torch.cat([take(f"{at}{part}_proj.weight") for part in "qkv"]),
        qkv_bias=torch.cat(known) if len(known) == 3 else None,
        q_norm=take.maybe(f"{at}q_norm.weight"),
        k_norm=take.maybe(f"{at}k_norm.weight"),
        output=take(f"{at}o_proj.weight"),
        output_bias=take.maybe(f"{at}o_proj.bias"),
        mlp_norm=take(f"{prefix}post_attention_layernorm.weight"),
        gate_up=torch.cat([take(f"{prefix}mlp.gate_proj.weight"), take(f"{prefix}mlp.up_proj.weight")]),
        down=take(f"{prefix}mlp.down_proj.weight"),
    )


def _targets_embedding(target: Any, width: int) -> torch.Tensor:
    embedding: torch.Tensor | None = getattr(target, "input_embeddings", None)
    if embedding is None:
        raise ValueError(f"it has no embeddings of its own, and {type(target).__name__} has no input_embeddings to share")
    if embedding.shape[1] != width:
        raise ValueError(f"it has no embeddings of its own, and is {width} wide where its target is {embedding.shape[1]}")
    return embedding.detach()


def _token_ids(d2t: torch.Tensor | None, t2d: torch.Tensor | None, known: int, vocab_size: int) -> torch.Tensor | None:
    """The target's token of each of the head's; None where all are the same."""
    if d2t is None:
        if known != vocab_size:
            raise ValueError(f"d2t is missing: lm_head.weight has {known} tokens, embed_tokens.weight {vocab_size}")
        return None
    if d2t.shape != (known,):
        raise ValueError(f"d2t is {list(d2t.shape)}, lm_head.weight has {known} tokens")
    token_ids = torch.arange(known) + d2t.to(torch.int64)
    if known and not 0 <= int(token_ids.min()) <= int(token_ids.max()) < vocab_size:
        raise ValueError(f"d2t leads to token {int(token_ids.max())}, the target has {vocab_size}")
    if len(token_ids.unique()) != known:
        raise ValueError("d2t leads to a token twice")
    if t2d is not None and (len(t2d) != vocab_size or t2d.bool().nonzero().flatten().tolist() != sorted(token_ids.tolist())):
        raise ValueError(f"t2d and d2t do not agree about which of the target's {vocab_size} tokens are known")
    return None if known == vocab_size and not bool(d2t.any()) else token_ids


def _layers(config: Mapping[str, Any], weights: HeadWeights, target: Any) -> list[int]:
    found = config.get(_IDS)
    if not found and (leaving := (config.get("eagle_config") or {}).get(_IDS)):
        found = [layer + 1 for layer in leaving]
    if not found:
        depth = getattr(target, "num_layers", None)
        if depth is None:
            raise ValueError(f"{_IDS} is missing, and {type(target).__name__} does not say how many layers it has (num_layers)")
        found = [2, depth // 2, depth - 3]
        if min(found) < 0:
            raise ValueError(f"{_IDS} is missing, and a target of {depth} layers has no layer {min(found)}")
    width, norm = weights.fuse.shape[1], weights.input_norm
    if width % len(found) or (norm is not None and len(norm) != width):
        raise ValueError(f"fc.weight is {list(weights.fuse.shape)}, which does not fit {len(found)} layers")
    return [int(layer) for layer in found]
