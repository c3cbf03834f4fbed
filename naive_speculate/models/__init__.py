"""What computes, and what is read from files: executors, draft heads, other libraries' drafters,
translation between tokenizers. `load_pair` loads a target with its drafters; `wrap` wraps a
transformers model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from naive_speculate.models.load import wrap
    from naive_speculate.models.pairs import load_pair
    from naive_speculate.pair import ModelPair

__all__ = ["ModelPair", "load_pair", "wrap"]

_MODULES = {
    "ModelPair": "naive_speculate.pair",
    "load_pair": "naive_speculate.models.pairs",
    "wrap": "naive_speculate.models.load",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: a part of the models does not need the others."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
