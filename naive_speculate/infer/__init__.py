"""Inference basis for speculative decoding: models, caches, and the engine that generates tokens with them."""

from naive_speculate.infer.dynamic_cache import DynamicKVCache
from naive_speculate.infer.inferencer import BasicInferencer
from naive_speculate.infer.protocols import (
    BatchLanguageModel,
    DecodeOutput,
    Inferencer,
    KVCache,
    KVState,
    LanguageModel,
    PrefillOutput,
)
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache
from naive_speculate.infer.transformers_model import TransformersLanguageModel
from naive_speculate.sampling.strategy import SampleStrategy

__all__ = [
    "BasicInferencer",
    "BatchLanguageModel",
    "CacheRows",
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
]
