"""The name of `naive_speculate.tools.doctor` before version 0.3, which was documented."""

from naive_speculate.tools.doctor import Diagnosis, diagnose, read

__all__ = ["Diagnosis", "diagnose", "read"]
