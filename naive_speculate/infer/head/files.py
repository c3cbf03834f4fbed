"""Finds and reads the files of a draft head: `config.json` and safetensors, in a local folder or on the Hub.

Tensor names are those of vLLM's speculators: `layers.0.*`, where the EAGLE authors write `midlayer.*`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from naive_speculate.infer.files import is_path, model_file, tensor_files


def is_head(source: str | Path) -> bool:
    """Whether a folder or a Hub repository holds a draft head; False where it cannot be read.

    A head is recognised by its configuration: its name, a `draft_vocab_size` or a `dflash_config`. Otherwise the tensors of a
    folder decide.
    """
    name = str(source)
    try:
        config = read_config(name)
        return declares_head(config) or declares_block(config) or (is_path(name) and "fc.weight" in _tensor_names(name))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError):
        return False


def declares_head(config: Mapping[str, Any]) -> bool:
    """Whether a configuration declares a draft head."""
    names = (config.get("speculators_model_type"), *(config.get("architectures") or ()))
    return "draft_vocab_size" in config or any("eagle3" in str(name).lower() for name in names)


def declares_block(config: Mapping[str, Any]) -> bool:
    """Whether a configuration declares a block drafter."""
    return "dflash_config" in config or any("dflash" in str(name).lower() for name in config.get("architectures") or ())


def read_config(name: str) -> dict[str, Any]:
    """The configuration of a head; a `ValueError` if there is none."""
    path = model_file(name, "config.json")
    if path is None:
        raise ValueError("there is no such folder" if is_path(name) and not Path(name).exists() else "it has no config.json")
    found: Any = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("its config.json holds no configuration")
    return found


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
    return key.removeprefix("model.").replace("midlayer.", "layers.0.")
