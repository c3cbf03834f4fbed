"""Toy language models and exact enumeration, which are public: `naive_speculate.testing`."""

from naive_speculate.testing import EOS, ToyModel, enumerate_outputs, exact_outputs, largest_difference

__all__ = ["EOS", "ToyModel", "enumerate_outputs", "exact_outputs", "largest_difference"]
