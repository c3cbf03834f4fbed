"""Costs of drafting and verifying, relative to a plain step."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs in units of the target's forward over one token.

    Attributes:
        draft: One draft forward.
        verify: A target forward over 1, 2, 3 … tokens; extrapolated with the mean growth from 2 on.
        call: If one call drafts several tokens, its cost in addition to theirs. None if each token is a call.
    """

    draft: float
    verify: tuple[float, ...] = (1.0,)
    call: float | None = None

    def verify_cost(self, num_draft_tokens: int) -> float:
        """Cost of verifying that many draft tokens."""
        last = len(self.verify) - 1
        if num_draft_tokens <= last:
            return self.verify[num_draft_tokens]
        first = min(1, last - 1)  # the first draft token costs more, since it includes the call
        slope = max(0.0, (self.verify[last] - self.verify[first]) / (last - first)) if last else 0.0
        return self.verify[last] + slope * (num_draft_tokens - last)

    def to_dict(self) -> dict[str, Any]:
        """The costs as plain JSON values."""
        found = asdict(self) | {"verify": list(self.verify)}
        return {name: value for name, value in found.items() if value is not None}


def read_costs(path: Path, with_head: bool) -> dict[str, Any]:
    """Measurements of `bench --write-costs`, as fields of a pair; those of the head only with `with_head`."""
    if not path.is_file():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, Any] = {"measured_costs": _cost_table(data)}
    if with_head and "head" in data:
        found |= {"measured_head_costs": _cost_table(data["head"]), "fastest_drafter": data["fastest_drafter"]}
    return found


def _cost_table(data: dict[str, Any]) -> CostTable:
    return CostTable(float(data["draft"]), tuple(float(cost) for cost in data["verify"]), data.get("call"))
