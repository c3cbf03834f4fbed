"""Inference for speculative decoding: models, caches, and the engine that generates tokens with
them."""

from typing import TYPE_CHECKING, Any

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
from naive_speculate.sampling.strategy import SampleStrategy

if TYPE_CHECKING:
    from naive_speculate.infer.transformers_model import TransformersLanguageModel

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


def __getattr__(name: str) -> Any:
    """Import lazily the one name that needs transformers' model classes, which takes seconds."""
    if name != "TransformersLanguageModel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from naive_speculate.infer.transformers_model import TransformersLanguageModel

    return TransformersLanguageModel
