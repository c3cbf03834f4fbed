"""Proofs by exact enumeration: whether a verifier or a drafter, of this package or of yours, leaves the target's distribution
as it is. `python -m naive_speculate prove module:Name` from a shell."""

from naive_speculate.testing.enumeration import enumerate_outputs, exact_outputs, largest_difference
from naive_speculate.testing.paths import Deviation
from naive_speculate.testing.proof import Counterexample, Proof, prove_lossless
from naive_speculate.testing.toys import EOS, ToyModel

__all__ = [
    "EOS",
    "Counterexample",
    "Deviation",
    "Proof",
    "ToyModel",
    "enumerate_outputs",
    "exact_outputs",
    "largest_difference",
    "prove_lossless",
]
