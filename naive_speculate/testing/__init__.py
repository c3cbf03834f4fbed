"""Proofs by exact enumeration that a verifier or drafter, registered or your own, preserves the
target's distribution.

Command line: `python -m naive_speculate prove module:Name`.
"""

from naive_speculate.testing.enumeration import enumerate_outputs, exact_outputs, largest_difference
from naive_speculate.testing.paths import Deviation
from naive_speculate.testing.proof import prove_lossless
from naive_speculate.testing.result import Counterexample, Proof
from naive_speculate.testing.sampler import SamplerProof, prove_sampler
from naive_speculate.testing.toys import EOS, ToyModel

__all__ = [
    "EOS",
    "Counterexample",
    "Deviation",
    "Proof",
    "SamplerProof",
    "ToyModel",
    "enumerate_outputs",
    "exact_outputs",
    "largest_difference",
    "prove_lossless",
    "prove_sampler",
]
