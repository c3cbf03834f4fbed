"""Loads draft heads: the layouts of the EAGLE authors, of vLLM's speculators, and one of our own.

The first two store a layer's weights under transformers' names, as `midlayer.*` the former and `layers.0.*` the latter
(which may have more layers, as in a Llama), beside `fc.weight`, `norm.weight`, `lm_head.weight`, and for a head with fewer
tokens than its target `d2t` (offsets: the target's token is `i + d2t[i]`) and `t2d` (which of the target's tokens it
knows). Where there is no `embed_tokens.weight`, the target's embeddings serve. The authors' configuration is flat;
speculators' has the layer's sizes in `transformer_layer_config`. A head with `state_proj.weight` adds its states to the
embeddings (see `HeadWeights`); that is our own layout, otherwise as speculators', except that `hidden_norm.weight` stands
outside the layers. The tensors say what a head is and how many layers it has: the authors' configurations call theirs
`LlamaForCausalLM`, and one declares the 40 layers of its target.

EAGLE-3.1 has two options more, which vLLM, SGLang and speculators read: `fc_norm.{i}.weight` norm the hidden state of each of
the target's layers before `fc.weight`, and `norm_output` feeds back the state after `norm.weight`.

Which hidden states of the target are read: `eagle_aux_hidden_state_layer_ids`, else 2, n / 2 and n - 3 of n layers. The numbers
come in two conventions; see `_layers`.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from transformers.utils.hub import cached_file

from naive_speculate.infer.damage import damaged_file
from naive_speculate.infer.head.model import DraftHead
from naive_speculate.infer.head.weights import HeadWeights
from naive_speculate.infer.llama.stored import full_config
from naive_speculate.infer.llama.weights import LlamaLayer, LlamaShape, RotaryTable, default_rotary, is_supported, shape_in

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_IDS = "eagle_aux_hidden_state_layer_ids"
_IGNORED = ("verifier_norm.weight", "verifier_lm_head.weight", ".self_attn.rotary_emb.inv_freq")
"""Ends of names."""
_LAYER = re.compile(r"layers\.(\d+)\.")
_FC_NORM = re.compile(r"fc_norm\.\d+\.weight")
_log = logging.getLogger(__name__)


def is_head(source: str | Path) -> bool:
    """Whether a folder or a Hub repository holds a draft head; False where that cannot be read.

    Its configuration may say so, by its name or by a `draft_vocab_size`; else its tensors do, if they are in a folder.
    """
    name = str(source)
    try:
        config = _read_config(name)
        return _says_head(config) or (_is_path(name) and "fc.weight" in _tensor_names(name))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
        return False


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
        stored = _read_tensors(name)
        if "fc.weight" not in stored and not _says_head(config):
            raise ValueError("it is no EAGLE-3 head and none of `python -m train`: it has no fc.weight")
        wanted = stored["fc.weight"].dtype if dtype is None else dtype
        kept = {key: tensor for key, tensor in stored.items() if not key.endswith(_IGNORED)}
        tensors = {key: t.to(device, wanted) if t.is_floating_point() else t for key, t in kept.items()}
        layer_config = _layer_config(config, _num_layers(tensors))
        weights = _weights(tensors, config, layer_config, target)
        layers = _layers(config, weights, target)
        shape = _shape(layer_config, weights)
        rotary = _rotary(layer_config, shape.head_dim, device)
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        said = f"{error.args[0]} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        reason = damaged_file(name) or said
        raise ValueError(f"head={name!r} cannot be loaded: {reason[:300]}") from None
    return DraftHead(weights, shape, rotary, layers, name, executor)


def _says_head(config: Mapping[str, Any]) -> bool:
    names = (config.get("speculators_model_type"), *(config.get("architectures") or ()))
    return "draft_vocab_size" in config or any("eagle3" in str(name).lower() for name in names)


def _read_config(name: str) -> dict[str, Any]:
    path = _file(name, "config.json")
    if path is None:
        raise ValueError("there is no such folder" if _is_path(name) and not Path(name).exists() else "it has no config.json")
    found: Any = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("its config.json holds no configuration")
    return found


def _tensor_files(name: str) -> list[Path]:
    if (single := _file(name, "model.safetensors")) is not None:
        return [single]
    if (index := _file(name, "model.safetensors.index.json")) is None:
        pickled = " (pytorch_model.bin is not read, since it can hold any program)" if _file(name, "pytorch_model.bin") else ""
        raise ValueError(f"it has no model.safetensors{pickled}")
    files = []
    for shard in sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())):
        if (path := _file(name, shard)) is None:
            raise ValueError(f"it has no {shard}, which {index.name} names")
        files.append(path)
    return files


def _tensor_names(name: str) -> set[str]:
    names = set[str]()
    for path in _tensor_files(name):
        with safe_open(path, framework="pt") as file:
            names.update(map(_as_speculators, file.keys()))
    return names


def _read_tensors(name: str) -> dict[str, torch.Tensor]:
    """All tensors, named as speculators names them."""
    tensors: dict[str, torch.Tensor] = {}
    for path in _tensor_files(name):
        try:
            tensors |= load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path.name} is damaged: {error}") from None
    return {_as_speculators(key): tensor for key, tensor in tensors.items()}


def _as_speculators(key: str) -> str:
    return key.removeprefix("model.").replace("midlayer.", "layers.0.")


def _file(name: str, file: str) -> Path | None:
    if _is_path(name):
        return path if (path := Path(name).expanduser() / file).is_file() else None
    found = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
    return None if found is None else Path(found)


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or Path(name).exists()


def _option(config: Mapping[str, Any], name: str) -> Any:
    """An option at the top level of a configuration, or else in its `eagle_config`."""
    own, nested = config.get(name), config.get("eagle_config") or {}
    return nested.get(name) if own is None else own


def _num_layers(tensors: Mapping[str, torch.Tensor]) -> int:
    return 1 + max((int(found[1]) for key in tensors if (found := _LAYER.match(key))), default=0)


def _layer_config(config: Mapping[str, Any], num_layers: int) -> "PretrainedConfig":
    kind = config.get("speculators_model_type", "eagle3")
    if kind != "eagle3":
        raise ValueError(f"speculators_model_type is {kind!r}, not 'eagle3'")
    flat = dict(config.get("transformer_layer_config") or config)
    if (declared := flat.get("num_hidden_layers")) != num_layers:
        _log.info("the head has %d layers, its configuration says %s", num_layers, declared)
        flat["num_hidden_layers"] = num_layers
        flat.pop("layer_types", None)  # they are those of the layers declared
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
    before_residual = bool(_option(config, "norm_before_residual"))
    if adds and before_residual:
        raise ValueError("norm_before_residual is not known here for a head that adds states to embeddings")
    take = _Taker(tensors, _widths(layer, adds))
    embedding = tensors.pop("embed_tokens.weight", None)
    if embedding is None:
        embedding = _targets_embedding(target, layer.hidden_size).to(tensors["fc.weight"])
    elif embedding.dim() != 2 or embedding.shape[1] != layer.hidden_size:
        raise ValueError(f"embed_tokens.weight is {list(embedding.shape)}, hidden_size is {layer.hidden_size}")
    tied = layer.tie_word_embeddings and "lm_head.weight" not in tensors
    head = embedding if tied else take("lm_head.weight")
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
        norm_before_residual=before_residual,
        layer_norms=_layer_norms(take, bool(_option(config, "fc_norm"))),
        norm_output=bool(_option(config, "norm_output")),
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


def _layer_norms(take: _Taker, declared: bool) -> torch.Tensor | None:
    names = sorted((name for name in take.tensors if _FC_NORM.fullmatch(name)), key=lambda name: int(name.split(".")[1]))
    if not names and not declared:
        return None
    norms = [take(f"fc_norm.{index}.weight") for index in range(max(1, len(names)))]
    if any(norm.dim() != 1 or norm.shape != norms[0].shape for norm in norms):
        raise ValueError(f"fc_norm has weights of shapes {', '.join(str(list(norm.shape)) for norm in norms)}")
    return torch.stack(norms)


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
    """After how many of the target's layers stand the hidden states that the head reads."""
    depth: int | None = getattr(target, "num_layers", None)
    found = _given_layers(config, depth)
    if found is None:
        if depth is None:
            raise ValueError(f"{_IDS} is missing, and {type(target).__name__} does not say how many layers it has (num_layers)")
        found = [2, depth // 2, depth - 3]
        if min(found) < 0:
            raise ValueError(f"{_IDS} is missing, and a target of {depth} layers has no layer {min(found)}")
    width, norm, norms = weights.fuse.shape[1], weights.input_norm, weights.layer_norms
    if width % len(found) or (norm is not None and len(norm) != width):
        raise ValueError(f"fc.weight is {list(weights.fuse.shape)}, which does not fit {len(found)} layers")
    if norms is not None and norms.shape != (len(found), width // len(found)):
        raise ValueError(f"fc_norm has {len(norms)} weights of {norms.shape[1]}, which do not fit {len(found)} layers")
    return found


def _given_layers(config: Mapping[str, Any], depth: int | None) -> list[int] | None:
    """The numbers of a configuration as numbers of layers before a hidden state, whichever convention they follow.

    A number i means what enters the layer with index i, which stands after i layers (EAGLE's `modeling_llama_kv.py`, whose
    default is 2, n / 2, n - 3; vLLM and speculators), or what leaves it, after i + 1 layers (SpecForge, whose default is
    1, n / 2 - 1, n - 4; earlier SGLang). The evidence, from the strongest:

    1. Numbers that would lead beyond the last layer cannot be of layers that are left.
    2. SpecForge's default, wherever it stands, is of layers that are left.
    3. Numbers at the top level, where vLLM and speculators read them, are of layers that are entered.
    4. In `eagle_config`, a first number of 1 is of layers that are left, and any other of layers that are entered: no head
       reads the state after one layer (sgl-project/sglang#25454).
    """
    nested = (config.get("eagle_config") or {}).get(_IDS)
    given = config.get(_IDS) or nested
    if not given:
        return None
    if not isinstance(given, list) or any(type(layer) is not int or layer < 0 for layer in given):
        raise ValueError(f"{_IDS} must be a list of layer numbers, got {given!r:.80}")
    if depth is not None and max(given) + 1 > depth:
        leaves, why = False, f"{max(given)} is the last that there is"
    elif depth is not None and given == [1, depth // 2 - 1, depth - 4]:
        leaves, why = True, "they are SpecForge's default"
    elif config.get(_IDS):
        leaves, why = False, "they stand at the top level"
    else:
        leaves, why = given[0] == 1, f"the first is {given[0]}"
    _log.info("%s %s are taken as layers that are %s: %s", _IDS, given, "left" if leaves else "entered", why)
    return [layer + leaves for layer in given]
