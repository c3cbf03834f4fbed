"""`python -m naive_speculate bench`: this decoder beside transformers' generation, on the same pair and the same prompts.

Everything runs in one process and in turn, so that a busy machine slows all ways alike; figures are medians.
"""

from naive_speculate.bench.command import main

__all__ = ["main"]
