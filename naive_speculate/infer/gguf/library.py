"""llama.cpp, loaded on first use, with its error messages."""

import ctypes
import importlib
import importlib.metadata
import logging
import weakref
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any

from naive_speculate.infer import device

# least version of llama-cpp-python; the structures of llama.cpp's C interface change between
# versions
_AT_LEAST = "0.3.36"
_NEEDED = (
    f"needs the package llama-cpp-python>={_AT_LEAST}: pip install '.[gguf]' in the repository"
)
_ERROR_LEVEL = 4
_log = logging.getLogger(__name__)
_errors: deque[str] = deque(maxlen=8)
_callbacks: list[Any] = []


def is_installed() -> bool:
    """Whether a recent enough llama-cpp-python is installed; it is not imported."""
    return device.is_installed("llama-cpp-python", _AT_LEAST)


@cache
def llama_cpp() -> Any:
    """The module of llama-cpp-python with llama.cpp's C functions. Raises `ValueError`, which
    names the extra, if the package is missing, too old, or cannot load its library."""
    try:
        found = importlib.metadata.version("llama-cpp-python")
        if not is_installed():
            raise ValueError(f"{_NEEDED} ({found} is installed)")
        library = importlib.import_module("llama_cpp")
    except (ImportError, OSError, RuntimeError) as error:
        raise ValueError(f"{_NEEDED} ({' '.join(str(error).split())[:120]})") from None
    _callbacks.append(library.llama_log_callback(_listen))
    library.llama_log_set(_callbacks[-1], ctypes.c_void_p(0))
    library.llama_backend_init()
    return library


def _listen(level: int, text: bytes, _: Any) -> None:
    line = text.decode("utf-8", errors="replace").strip()
    _log.debug("%s", line)
    if level >= _ERROR_LEVEL and len(line) > 1:
        _errors.append(line.partition(": ")[2] or line)  # without the C++ function's name


class ModelFile:
    """A GGUF file loaded by llama.cpp; freed with its last reference. Of several parts, `path`
    is the first; `options` are fields of `llama_model_params`. `handle` is llama.cpp's
    `llama_model *`, `vocabulary` its `llama_vocab *`. Raises `ValueError` with llama.cpp's error
    message, or the name of the missing extra."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        self.path = Path(path)
        library = llama_cpp()
        params = library.llama_model_default_params()
        for name, value in options.items():
            setattr(params, name, value)
        _errors.clear()
        self.handle = library.llama_model_load_from_file(str(self.path).encode(), params)
        if not self.handle:
            raise ValueError(_errors[0] if _errors else "llama.cpp cannot load it")
        weakref.finalize(self, library.llama_model_free, self.handle)
        self.vocabulary = library.llama_model_get_vocab(self.handle)

    def value(self, key: str) -> str | None:
        """The value of a metadata key, as text; None if the key is missing."""
        text = ctypes.create_string_buffer(256)
        found = llama_cpp().llama_model_meta_val_str(self.handle, key.encode(), text, len(text))
        return text.value.decode("utf-8", errors="replace") if found >= 0 else None

    def special_token(self, name: str) -> int | None:
        """The id of the token "bos" or "eos"; None where there is none.

        For byte-level BPE only ids in the file count, since llama.cpp defaults to GPT-2's token 11.
        """
        if (
            self.value("tokenizer.ggml.model") == "gpt2"
            and self.value(f"tokenizer.ggml.{name}_token_id") is None
        ):
            return None
        token = int(getattr(llama_cpp(), f"llama_vocab_{name}")(self.vocabulary))
        return token if token >= 0 else None


class Context:
    """A model's working memory in llama.cpp: a unified cache of `num_cells` tokens for up to
    `MAX_ROWS` sequences.

    Layers with a sliding window store all their keys, so that every sequence can be rolled back.
    `options` are more fields of `llama_context_params`. `handle` is llama.cpp's `llama_context
    *`, `memory` its `llama_memory_t`. Raises `MemoryError` if memory is insufficient, or the
    model does not support these options.
    """

    MAX_ROWS = 256  # LLAMA_MAX_SEQ
    MAX_TOKENS = 512  # most tokens of one call

    def __init__(
        self, file: ModelFile, num_cells: int, num_threads: int, options: dict[str, Any]
    ) -> None:
        self.file = file
        library = llama_cpp()
        params = library.llama_context_default_params()
        settings = {
            "n_ctx": num_cells,
            "n_batch": self.MAX_TOKENS,
            "n_ubatch": self.MAX_TOKENS,
            "n_seq_max": self.MAX_ROWS,
            "n_threads": num_threads,
            "n_threads_batch": num_threads,
            "swa_full": True,
            "kv_unified": True,
            "no_perf": True,
        }
        for name, value in (settings | options).items():
            setattr(params, name, value)
        _errors.clear()
        self.handle = library.llama_init_from_model(file.handle, params)
        if not self.handle:
            detail = f": {_errors[0]}" if _errors else ""
            raise MemoryError(
                f"llama.cpp has no memory for {num_cells} tokens of {file.path.name}{detail}"
            )
        # The model must outlive its contexts.
        weakref.finalize(self, lambda handle, _: library.llama_free(handle), self.handle, file)
        self.memory = library.llama_get_memory(self.handle)
        self.num_cells = int(library.llama_n_ctx(self.handle))
