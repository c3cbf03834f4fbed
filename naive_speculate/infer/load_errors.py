"""What kept a model from loading, in one line."""

import re
from pathlib import Path

import torch
from safetensors import SafetensorError

from naive_speculate.infer.files import damaged_file
from naive_speculate.infer.gguf.metadata import is_gguf

_NO_MEMORY = re.compile("[Cc]annot allocate memory|can't allocate memory|bad_alloc")  # of mmap, torch and ONNX Runtime


def load_error(argument: str, name: str, error: Exception, files: str = "config.json") -> ValueError:
    """The error of a model that cannot be loaded, in one line. `files`: those whose values can cause an error of any kind."""
    if name.startswith((".", "/", "~")) and not Path(name).exists():
        return ValueError(f"{argument}={name!r}: there is no such {'file' if is_gguf(name) else 'folder'}")
    reason = one_line(error)
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or _NO_MEMORY.search(reason):
        return ValueError(f"{argument}={name!r} does not fit in memory: {reason}")
    if not is_gguf(name):
        if not isinstance(error, (OSError, ValueError, ImportError, RuntimeError, SafetensorError)):
            shown = repr(error) if isinstance(error, KeyError) else reason  # transformers looks values up
            reason = f"a value in its {files} is wrong ({shown})"
        elif "custom code" in reason:
            reason = "it needs code of its own, which is not run"
        reason = damaged_file(name) or reason
    return ValueError(f"{argument}={name!r} cannot be loaded: {reason}")


def one_line(error: Exception) -> str:
    """An error's message in one line."""
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return " ".join(str(error).split())[:300] or type(error).__name__
