"""Why two texts of the same prompt differ."""

from naive_speculate.differing.compare import Difference, Margin, Verdict, differ

__all__ = ["Difference", "Margin", "Verdict", "differ"]
