"""What drafting and verifying cost, beside a plain step."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs in units of the target's forward over one token.

    Attributes:
        draft: One draft forward.
        verify: A target forward over 1, 2, 3 … tokens; beyond the end it grows as it did on average from 2 on.
        call: Where one call drafts several tokens, what it costs beside them: all that it drafts is paid for, whether it is
            verified or not. None where each token is a call.
    """

    draft: float
    verify: tuple[float, ...] = (1.0,)
    call: float | None = None

    def verify_cost(self, num_draft_tokens: int) -> float:
        """Cost of verifying that many drafts."""
        last = len(self.verify) - 1
        if num_draft_tokens <= last:
            return self.verify[num_draft_tokens]
        first = min(1, last - 1)  # a window's first draft costs more than the others: its call is in it
        slope = max(0.0, (self.verify[last] - self.verify[first]) / (last - first)) if last else 0.0
        return self.verify[last] + slope * (num_draft_tokens - last)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        found = asdict(self) | {"verify": list(self.verify)}
        return {name: value for name, value in found.items() if value is not None}


def read_costs(path: Path, with_head: bool) -> dict[str, Any]:
    """What `bench --write-costs` measured, as a pair's fields; what it says of a head only where that is the pair's."""
    if not path.is_file():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, Any] = {"measured_costs": _cost_table(data)}
    if with_head and "head" in data:
        found |= {"measured_head_costs": _cost_table(data["head"]), "fastest_drafter": data["fastest_drafter"]}
    return found


def _cost_table(data: dict[str, Any]) -> CostTable:
    return CostTable(float(data["draft"]), tuple(float(cost) for cost in data["verify"]), data.get("call"))
