"""How tokens are chosen: parameters, the random source, and the steps from logits to
probabilities."""

from naive_speculate.sampling.params import SamplingParams
from naive_speculate.sampling.random_source import RandomSource, SeededRandom
from naive_speculate.sampling.strategy import SampleStrategy, TokenSampler

__all__ = [
    "RandomSource",
    "SampleStrategy",
    "SamplingParams",
    "SeededRandom",
    "TokenSampler",
]
