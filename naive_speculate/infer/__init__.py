"""Inference for speculative decoding: models, caches, and the engine that generates tokens with
them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from naive_speculate.infer.inferencer import BasicInferencer
    from naive_speculate.infer.plain import new_cache
    from naive_speculate.infer.protocols import (
        BatchLanguageModel,
        DecodeOutput,
        Inferencer,
        KVCache,
        KVState,
        LanguageModel,
        PrefillOutput,
    )
    from naive_speculate.infer.ragged_cache import DynamicKVCache, RaggedKVCache
    from naive_speculate.infer.transformers_model import TransformersLanguageModel
    from naive_speculate.sampling.strategy import SampleStrategy

__all__ = [
    "BasicInferencer",
    "BatchLanguageModel",
    "DecodeOutput",
    "DynamicKVCache",
    "Inferencer",
    "KVCache",
    "KVState",
    "LanguageModel",
    "PrefillOutput",
    "RaggedKVCache",
    "SampleStrategy",
    "TransformersLanguageModel",
    "new_cache",
]

_MODULES = {
    "BasicInferencer": "infer.inferencer",
    "DynamicKVCache": "infer.ragged_cache",
    "RaggedKVCache": "infer.ragged_cache",
    "SampleStrategy": "sampling.strategy",
    "TransformersLanguageModel": "infer.transformers_model",
    "new_cache": "infer.plain",
}
"""Where the names are; the others are protocols."""


def __getattr__(name: str) -> Any:
    """Import on use: `costs`, which light commands read, needs no torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"naive_speculate.{_MODULES.get(name, 'infer.protocols')}")
    return getattr(module, name)
