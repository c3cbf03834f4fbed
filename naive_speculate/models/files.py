"""Finds the files of a model, in a local folder or on the Hub, and reports in one line why it
cannot be loaded."""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from transformers.utils.hub import cached_file

from naive_speculate.text import one_line

_TOKENIZER, _TEMPLATE, _INDEX = (
    "tokenizer.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
)
_SCALES = (".weight_scale", ".weight_scale_inv")  # ends of names
# of mmap, torch and ONNX Runtime
_NO_MEMORY = re.compile("[Cc]annot allocate memory|can't allocate memory|bad_alloc")
_SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    _INDEX,
)


def is_path(name: str) -> bool:
    """Whether a model is named by a local folder."""
    return name.startswith((".", "/", "~")) or Path(name).exists()


def is_gguf(source: str | Path) -> bool:
    """Whether a model is named by a GGUF file."""
    return Path(source).suffix.lower() == ".gguf"


def model_file(name: str, file: str, fetch: bool = True) -> Path | None:
    """A file of a local folder or a Hub repository; without `fetch`, of the Hub's cache alone.
    None if there is none."""
    if is_path(name):
        return path if (path := Path(name).expanduser() / file).is_file() else None
    cached = cached_file(
        name, file, local_files_only=not fetch, _raise_exceptions_for_missing_entries=False
    )
    return None if cached is None else Path(os.fspath(cached))


def tensor_files(
    name: str, is_needed: Callable[[str], object] = bool, fetch: bool = True
) -> list[Path]:
    """The safetensors files of a local folder or a Hub repository; of several, those with a
    tensor whose name is wanted. Without `fetch`, only the cache of the Hub is read. Raises
    `ValueError` if one is missing."""
    if (single := model_file(name, "model.safetensors", fetch)) is not None:
        return [single]
    if (index := model_file(name, _INDEX, fetch)) is None:
        has_pickle = model_file(name, "pytorch_model.bin", fetch) is not None
        pickled = (
            " (pytorch_model.bin is not read, since it can hold any program)" if has_pickle else ""
        )
        raise ValueError(f"it has no model.safetensors{pickled}")
    files = []
    for shard in sorted({file for tensor, file in _shards(index).items() if is_needed(tensor)}):
        if (path := model_file(name, shard, fetch)) is None:
            raise ValueError(f"it has no {shard}, which {index.name} names")
        files.append(path)
    return files


def _shards(index: Path) -> dict[str, str]:
    """The file of each tensor, from an index of several files; a `ValueError` if the index is
    damaged."""
    content: Any = json.loads(index.read_text(encoding="utf-8"))
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if (
        not isinstance(shards, dict)
        or not shards
        or not all(str(file).endswith(".safetensors") for file in shards.values())
    ):
        raise ValueError("it has no weight_map of tensors to files")
    return shards


def damaged_file(source: str | Path) -> str | None:
    """The first file of a model that cannot be read, and why; None if all can be read. `source`:
    local folder, or Hub id whose files were downloaded."""
    folder = Path(source).expanduser()
    weights = (
        sorted(path.name for path in folder.glob("*.safetensors"))
        if folder.is_dir()
        else ["model.safetensors"]
    )
    for name in (*_SETTINGS, _TOKENIZER, _TEMPLATE, *weights):
        path = None
        with suppress(OSError, ValueError):
            path = model_file(str(source), name, fetch=False)
        if path is None:
            continue
        try:
            if path.suffix == ".safetensors":
                with safe_open(path, framework="pt"):
                    pass
            elif path.name == _TOKENIZER:
                Tokenizer.from_file(str(path))
            elif path.name == _INDEX:
                _shards(path)
            elif path.name == _TEMPLATE:
                path.read_text(encoding="utf-8")
            elif not isinstance(json.loads(path.read_text(encoding="utf-8")), dict):
                raise ValueError("it holds no JSON object")
        except Exception as error:  # tokenizers raises plain Exception
            copied = ", or was not copied in full" if isinstance(error, SafetensorError) else ""
            return f"{path.name} is damaged{copied} ({' '.join(str(error).split())[:160]})"
    return None


def load_error(
    argument: str, name: str, error: Exception, files: str = "config.json"
) -> ValueError:
    """The error of a model that cannot be loaded, in one line. `files`: those whose values can
    cause an error of any kind."""
    if name.startswith((".", "/", "~")) and not Path(name).exists():
        return ValueError(
            f"{argument}={name!r}: there is no such {'file' if is_gguf(name) else 'folder'}"
        )
    reason = one_line(error)
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or _NO_MEMORY.search(reason):
        return ValueError(f"{argument}={name!r} does not fit in memory: {reason}")
    if not is_gguf(name):
        if not isinstance(error, (OSError, ValueError, ImportError, RuntimeError, SafetensorError)):
            # transformers looks values up
            shown = repr(error) if isinstance(error, KeyError) else reason
            reason = f"a value in its {files} is wrong ({shown})"
        elif "custom code" in reason:
            reason = "it needs code of its own, which is not run"
        reason = damaged_file(name) or reason
    return ValueError(f"{argument}={name!r} cannot be loaded: {reason}")


def check_complete(report: Mapping[str, Any]) -> None:
    """Raise a `ValueError` where the files lack weights or have them in other shapes, which
    transformers would make up, or have quantised weights whose scales it ignores."""
    missing, misshapen = sorted(report["missing_keys"]), sorted(report["mismatched_keys"])
    ignored = set(report.get("unexpected_keys", ()))
    scales = [
        name
        for name in ignored
        if name.endswith(_SCALES) and name.rpartition("_scale")[0] not in ignored
    ]
    if scales:
        raise ValueError(
            "its weights are quantised in a way that transformers does not read: it ignores"
            f" {min(scales)}"
        )
    if missing:
        raise ValueError(
            f"its safetensors files lack {missing[0]}"
            + (f" and {len(missing) - 1} more" if missing[1:] else "")
        )
    if misshapen:
        name, stored, expected = misshapen[0]
        raise ValueError(f"{name} is {list(stored)}, its configuration requires {list(expected)}")
