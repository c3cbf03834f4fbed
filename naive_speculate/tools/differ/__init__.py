"""Why two texts of the same prompt differ."""

from naive_speculate.tools.differ.compare import (
    Difference,
    Flip,
    Margin,
    Verdict,
    compare,
    differ,
    find_flip,
)
from naive_speculate.tools.differ.scores import Scores

__all__ = ["Difference", "Flip", "Margin", "Scores", "Verdict", "compare", "differ", "find_flip"]
