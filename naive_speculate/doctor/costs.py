"""What drafting and verifying cost on somebody's machine, as they say or as the models' sizes suggest."""

import math
import re
from collections.abc import Sequence

from naive_speculate.costs import CostTable

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMBT]?)", re.IGNORECASE)
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def given(draft: float, verify: Sequence[float] = (1.0,)) -> CostTable:
    """Costs in units of the target's forward over one token.

    Args:
        draft: One draft forward.
        verify: A target forward over 1, 2, 3 … tokens; one number stands for every window.

    Raises:
        ValueError: If one is not positive.
    """
    for name, cost in (("draft_cost", draft), *(("verify_cost", cost) for cost in verify)):
        if not 0 < cost < math.inf:
            raise ValueError(f"{name} must be positive, got {cost:g}")
    if not verify:
        raise ValueError("verify_cost must have a number")
    return CostTable(draft, tuple(verify))


def estimated(draft_size: str, target_size: str, verify: Sequence[float] = (1.0,)) -> CostTable:
    """As if a forward took as long as its weights take to be read, which it does over few tokens.

    Args:
        draft_size, target_size: Parameters that a forward reads, such as "0.6B"; of a mixture of experts, the active ones.
        verify: As for `given`.

    Raises:
        ValueError: If a size is none.
    """
    return given(parameters(draft_size) / parameters(target_size), verify)


def parameters(size: str) -> float:
    """The number of parameters that a size such as "0.6B" means.

    Raises:
        ValueError: If it means none.
    """
    found = _SIZE.fullmatch(size.strip())
    number = float(found[1]) * _UNITS[found[2].upper()] if found else 0.0
    if not 0 < number < math.inf:
        raise ValueError(f"a model's size must be like 0.6B or 350M, got {size!r:.40}")
    return number
