"""Costs of drafting and verifying, as given by the user or estimated from the models' sizes."""

import math
import re
from collections.abc import Sequence

from naive_speculate.costs import CostTable

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMBT]?)", re.IGNORECASE)
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def given(draft: float, verify: Sequence[float] = (1.0,)) -> CostTable:
    """Costs in units of the target's pass over one token: of a draft pass, and of a target pass over 1, 2, 3 … tokens,
    or one number for all windows. Raises `ValueError` if one is not positive."""
    for name, cost in (("draft_cost", draft), *(("verify_cost", cost) for cost in verify)):
        if not 0 < cost < math.inf:
            raise ValueError(f"{name} must be positive, got {cost:g}")
    if not verify:
        raise ValueError("verify_cost must have at least one number")
    return CostTable(draft, tuple(verify))


def estimated(draft_size: str, target_size: str, verify: Sequence[float] = (1.0,)) -> CostTable:
    """Estimated costs, if a forward takes the time of reading its weights, as it does over few tokens. Sizes are the
    parameters that a forward reads, such as "0.6B"; for a mixture of experts the active ones. Raises `ValueError` if one is
    invalid."""
    return given(parameters(draft_size) / parameters(target_size), verify)


def from_words(draft: str, verify: str = "") -> tuple[CostTable | None, str]:
    """Costs from text fields, and their source in words; a `ValueError` names the argument.

    `draft` is a draft pass's cost such as "0.08", or two sizes such as "0.6B / 8B"; empty for unknown. `verify` is as for
    `given`, comma-separated; empty for 1.
    """
    table = _numbers("verify_cost", verify, "several with commas between them") if verify.strip() else (1.0,)
    if not draft.strip():
        if verify.strip():
            raise ValueError("verify_cost needs draft_cost")
        return None, ""
    of_draft, slash, of_target = draft.partition("/")
    if slash:
        basis = f"an estimate from {of_draft.strip()} ÷ {of_target.strip()}, counting only the reading of weights"
        return estimated(of_draft, of_target, table), basis
    (cost, *more) = _numbers("draft_cost", draft, "two sizes such as 0.6B / 8B")
    if more:
        raise ValueError(f"draft_cost must be one number, or two sizes such as 0.6B / 8B, got {draft!r:.40}")
    return given(cost, table), "as given"


def _numbers(name: str, text: str, other: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{name} must be a number, or {other}, got {text!r:.40}") from None


def parameters(size: str) -> float:
    """The number of parameters for a size such as "0.6B", or a `ValueError`."""
    found = _SIZE.fullmatch(size.strip())
    number = float(found[1]) * _UNITS[found[2].upper()] if found else 0.0
    if not 0 < number < math.inf:
        raise ValueError(f"a model's size must be like 0.6B or 350M, got {size!r:.40}")
    return number
