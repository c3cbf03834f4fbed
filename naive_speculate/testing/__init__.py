"""Proofs by exact enumeration: whether a verifier or a drafter, of this package or of yours, leaves the target's distribution
as it is. `python -m naive_speculate prove module:Name` from a shell."""

from naive_speculate.testing.enumeration import (
    Enumeration,
    enumerate_outputs,
    enumerate_paths,
    exact_outputs,
    largest_difference,
)
from naive_speculate.testing.paths import Branches, Deviation, Path
from naive_speculate.testing.proof import Counterexample, Proof, prove_lossless
from naive_speculate.testing.toys import EOS, ToyModel

__all__ = [
    "EOS",
    "Branches",
    "Counterexample",
    "Deviation",
    "Enumeration",
    "Path",
    "Proof",
    "ToyModel",
    "enumerate_outputs",
    "enumerate_paths",
    "exact_outputs",
    "largest_difference",
    "prove_lossless",
]
