"""Proofs by exact enumeration that a verifier or drafter, registered or your own, preserves the
target's distribution.

Command line: `python -m naive_speculate prove module:Name`.
"""

from naive_speculate.tools.proofs.enumeration import (
    enumerate_outputs,
    exact_outputs,
    largest_difference,
)
from naive_speculate.tools.proofs.paths import Deviation
from naive_speculate.tools.proofs.proof import prove_lossless
from naive_speculate.tools.proofs.result import Counterexample, Proof
from naive_speculate.tools.proofs.sampler import SamplerProof, prove_sampler
from naive_speculate.tools.proofs.toys import EOS, ToyModel

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
