"""The public name of the proofs, `naive_speculate.tools.proofs`."""

from naive_speculate.tools.proofs import *  # noqa: F403
from naive_speculate.tools.proofs import __all__ as __all__
