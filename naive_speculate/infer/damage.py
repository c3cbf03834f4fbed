"""Finds the damaged file of a model, for messages."""

import json
import os
from pathlib import Path

from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from transformers.utils.hub import cached_file

_TOKENIZER, _INDEX = "tokenizer.json", "model.safetensors.index.json"
_SETTINGS = ("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json", _INDEX)


def damaged_file(source: str | Path) -> str | None:
    """The first file of a model that cannot be read, and why; None if all can be read. `source`: local folder, or Hub id whose
    files were downloaded."""
    for path in _files(str(source)):
        try:
            if path.suffix == ".safetensors":
                with safe_open(path, framework="pt"):
                    pass
            elif path.name == _TOKENIZER:
                Tokenizer.from_file(str(path))
            elif not isinstance(json.loads(path.read_text(encoding="utf-8")), dict):
                raise ValueError("it holds no JSON object")
        except SafetensorError as error:
            return f"{path.name} is damaged, or was not copied in full ({_line(error)})"
        except Exception as error:  # tokenizers raises plain Exception
            return f"{path.name} is damaged ({_line(error)})"
    return None


def _files(source: str) -> list[Path]:
    folder = Path(source).expanduser()
    if folder.is_dir():
        names = [*_SETTINGS, _TOKENIZER, *sorted(path.name for path in folder.glob("*.safetensors"))]
        return [folder / name for name in names if (folder / name).is_file()]
    found = [_cached(source, name) for name in (*_SETTINGS, _TOKENIZER, "model.safetensors")]
    return [path for path in found if path is not None]


def _cached(source: str, name: str) -> Path | None:
    try:
        found = cached_file(source, name, local_files_only=True, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError):
        return None
    return None if found is None else Path(os.fspath(found))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
