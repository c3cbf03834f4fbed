"""Every public name is where documents say, whatever room has it."""

from importlib import import_module

import pytest

import naive_speculate
from naive_speculate.tools import proofs

PUBLIC = {
    "naive_speculate": naive_speculate.__all__,
    "naive_speculate.infer": (
        *("LanguageModel", "Inferencer", "KVCache", "KVState", "PrefillOutput", "DecodeOutput"),
        *("TransformersLanguageModel", "BasicInferencer", "DynamicKVCache"),
    ),
    "naive_speculate.models": ("ModelPair", "load_pair", "wrap"),
    "naive_speculate.speculate.drafter": ("Drafter", "DraftOut"),
    "naive_speculate.speculate.samplers": ("RejectionSampler", "TypicalAcceptanceSampler"),
    "naive_speculate.speculate.utils": ("greedy_match", "speculative_sampling"),
    "naive_speculate.testing": proofs.__all__,
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_importable(module):
    missing = [name for name in PUBLIC[module] if not hasattr(import_module(module), name)]
    assert missing == []
