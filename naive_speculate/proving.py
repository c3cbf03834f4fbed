"""The name of `naive_speculate.tools.prove` before version 0.3; its modules keep both names."""

from naive_speculate.tools import prove

__path__ = list(prove.__path__)
