"""Finds and reads the files of a draft head: `config.json` and safetensors, in a local folder or
on the Hub.

Tensor names are those of vLLM's speculators: `layers.0.*`, where the EAGLE authors write
`midlayer.*`. `eagle_aux_hidden_state_layer_ids` lists the target's hidden states that a head
reads; without it they are those after 2, n / 2 and n - 3 of n layers.
"""

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from naive_speculate.models.files import is_path, model_file, tensor_files
from naive_speculate.models.foreign.keys import BLOCK_KINDS, KINDS
from naive_speculate.models.heads.weights import HeadWeights

_IDS = "eagle_aux_hidden_state_layer_ids"
_BLOCK_IDS = "target_layer_ids"
_OTHER_METHODS = re.compile(
    r"(?i)medusa|hydra|mtp|p-?eagle|spark|xpress|mlp.?speculator|eagle(?!-?3)", re.ASCII
)
_OTHER_BLOCKS = re.compile(r"(?i)spark|domino|xpress|eagle", re.ASCII)  # SpecForge's, and others
_log = logging.getLogger(__name__)


def is_head(source: str | Path) -> bool:
    """Whether a folder or a Hub repository holds a draft head; False where it cannot be read.

    A head is recognised by its configuration: its name, a `draft_vocab_size` or a
    `dflash_config`. Otherwise the tensors of a folder decide.
    """
    name = str(source)
    try:
        config = read_config(name)
        return (
            declares_head(config)
            or declares_block(config)
            or declares_assistant(config)
            or (is_path(name) and "fc.weight" in _tensor_names(name))
        )
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        SafetensorError,
    ):
        return False


def declares_head(config: Mapping[str, Any]) -> bool:
    """Whether a configuration declares a draft head."""
    return (
        "draft_vocab_size" in config
        or "speculators_model_type" in config
        or any("eagle3" in str(name).lower() for name in config.get("architectures") or ())
    )


def declares_block(config: Mapping[str, Any]) -> bool:
    """Whether a configuration declares a block drafter."""
    return (
        "dflash_config" in config
        or config.get("speculators_model_type") in BLOCK_KINDS
        or any("dflash" in str(name).lower() for name in config.get("architectures") or ())
    )


def declares_assistant(config: Mapping[str, Any]) -> bool:
    """Whether a configuration declares an assistant of Gemma 4."""
    return config.get("model_type") in ("gemma4_assistant", "gemma4_unified_assistant")


def kind_of(config: Mapping[str, Any]) -> str:
    """The kind of a drafter: "assistant", or one of `KINDS`. Raises a `ValueError` that names
    another one."""
    names = [str(name) for name in config.get("architectures") or ()]
    declared = config.get("speculators_model_type")
    if declares_assistant(config):
        return "assistant"
    if declared == "mtp":
        raise ValueError(
            "it is an 'mtp' drafter of speculators, a layer of its target: write it into the"
            " target's checkpoint (`speculators stitch`), from where drafter 'mtp' reads it"
        )
    if declared is not None:
        if declared not in KINDS:
            known = ", ".join(map(repr, KINDS))
            raise ValueError(f"speculators_model_type is {declared!r:.80}, not one of {known}")
        return str(declared)
    if declares_block(config):
        for name in (*names, str(option(config, "projector_type", "dflash_config") or "")):
            if _OTHER_BLOCKS.search(name):
                raise ValueError(f"it is {name!r:.80}, not DFlash in the layout of z-lab/dflash")
        return "dflash2" if any("dflash2" in name.lower() for name in names) else "dflash"
    for name in names:
        if _OTHER_METHODS.search(name):
            raise ValueError(f"it is {name!r:.80}, which is not supported: no EAGLE-3 head")
    return "eagle3"


def read_config(name: str) -> dict[str, Any]:
    """The configuration of a head; a `ValueError` if there is none."""
    path = model_file(name, "config.json")
    if path is None:
        raise ValueError(
            "there is no such folder"
            if is_path(name) and not Path(name).exists()
            else "it has no config.json"
        )
    config: Any = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ValueError("its config.json holds no configuration")
    return config


def read_tensors(name: str) -> dict[str, torch.Tensor]:
    """All tensors by name; a `ValueError` if a file is missing or damaged."""
    tensors: dict[str, torch.Tensor] = {}
    for path in tensor_files(name):
        try:
            tensors |= load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path.name} is damaged: {error}") from None
    return {_as_speculators(key): tensor for key, tensor in tensors.items()}


def _tensor_names(name: str) -> set[str]:
    names = set[str]()
    for path in tensor_files(name):
        with safe_open(path, framework="pt") as file:
            names.update(map(_as_speculators, file.keys()))
    return names


def _as_speculators(key: str) -> str:
    key = key.removeprefix("model.").replace("midlayer.", "layers.0.")
    return key.removesuffix(".weight") if key.endswith("_codebook.weight") else key  # DFlash 2's


def option(config: Mapping[str, Any], name: str, section: str = "eagle_config") -> Any:
    """An option at the top level of a configuration, else in this section of it."""
    own, nested = config.get(name), config.get(section) or {}
    return nested.get(name) if own is None else own


def target_layers(config: Mapping[str, Any], weights: HeadWeights, target: Any) -> list[int]:
    """The hidden states that a head reads, each as the number of target layers before it. Raises
    `ValueError` if they are neither given nor implied, or the weights do not fit them."""
    depth: int | None = getattr(target, "num_layers", None)
    layers = _given_layers(config, depth)
    if layers is None:
        if depth is None:
            raise ValueError(f"{_IDS} is missing, and {type(target).__name__} has no num_layers")
        layers = [2, depth // 2, depth - 3]
        if min(layers) < 0:
            raise ValueError(
                f"{_IDS} is missing, and a target of {depth} layers has no layer {min(layers)}"
            )
    width, norm, norms = weights.fuse.shape[1], weights.input_norm, weights.layer_norms
    if width % len(layers) or (norm is not None and len(norm) != width):
        raise ValueError(
            f"fc.weight is {list(weights.fuse.shape)}, which does not fit {len(layers)} layers"
        )
    if norms is not None and norms.shape != (len(layers), width // len(layers)):
        raise ValueError(
            f"fc_norm has {len(norms)} weights of {norms.shape[1]}, which do not fit {len(layers)}"
            " layers"
        )
    return layers


def block_layers(config: Mapping[str, Any], weights: HeadWeights, target: Any) -> list[int]:
    """The hidden states that a block drafter reads, each as the number of target layers before it.

    `target_layer_ids` i is the output of layer i (z-lab/dflash, `extract_context_feature`).
    Without it they are spread evenly from the second layer to the third-last
    (`build_target_layer_ids` there). Raises `ValueError` as `target_layers`.
    """
    depth = getattr(target, "num_layers", None)
    if "speculators_model_type" in config:  # it numbers the inputs of layers
        name, after = "aux_hidden_state_layer_ids", 0
        layers = config.get(name)
    else:
        name, after = _BLOCK_IDS, 1
        layers = option(config, name, "dflash_config")
        if layers is None and depth is not None:
            last = len(weights.layers) - 1
            layers = (
                [round(1 + index * (depth - 4) / last) for index in range(last + 1)]
                if last
                else [depth // 2]
            )
    if layers is None:
        why = "" if after == 0 else f", and {type(target).__name__} has no num_layers"
        raise ValueError(f"{name} is missing{why}")
    _check_numbers(name, layers)
    if after and depth is not None and depth - 1 in layers:
        raise ValueError(
            f"{name} {layers} has the last layer, whose state z-lab/dflash reads after the target's"
            " final norm, which is not supported"
        )
    if weights.fuse.shape[1] % len(layers):
        raise ValueError(
            f"fc.weight is {list(weights.fuse.shape)}, which does not fit {len(layers)} layers"
        )
    return [layer + after for layer in layers]


def _given_layers(config: Mapping[str, Any], depth: int | None) -> list[int] | None:
    """The configured layer numbers, each as the number of layers before its hidden state; None
    where there are none."""
    nested = (config.get("eagle_config") or {}).get(_IDS)
    layers = config.get(_IDS) or nested
    if not layers:
        return None
    _check_numbers(_IDS, layers)
    if "speculators_model_type" in config:
        outputs, why = False, "they are speculators'"
    elif depth is not None and max(layers) + 1 > depth:
        outputs, why = False, f"the target has {depth} layers"
    elif depth is not None and layers == [1, depth // 2 - 1, depth - 4]:
        outputs, why = True, "they are SpecForge's default"
    elif config.get(_IDS):
        outputs, why = False, "they are at the top level"
    else:
        outputs, why = layers[0] == 1, f"the first is {layers[0]}"
    _log.info(
        "%s %s are read as layer %s: %s", _IDS, layers, "outputs" if outputs else "inputs", why
    )
    return [layer + outputs for layer in layers]


def _check_numbers(name: str, value: Any) -> None:
    if (
        not isinstance(value, list)
        or not value
        or any(type(layer) is not int or layer < 0 for layer in value)
    ):
        raise ValueError(f"{name} must be a list of layer numbers, got {value!r:.80}")
