"""The samplers with vLLM's interface, under vLLM's name for the module."""

from naive_speculate.speculate.verify.rejection import RejectionSampler
from naive_speculate.speculate.verify.typical import TypicalAcceptanceSampler

__all__ = ["RejectionSampler", "TypicalAcceptanceSampler"]
