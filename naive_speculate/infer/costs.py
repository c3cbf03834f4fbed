"""What forwards cost, in forwards of the target over one token."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs in units of the target's forward over one token."""

    draft: float  # one draft forward
    verify: tuple[float, ...] = (
        1.0,
    )  # a target forward over 1, 2, 3 … tokens; extrapolated with the mean growth from 2 on

    def verify_cost(self, num_draft_tokens: int) -> float:
        """Cost of verifying that many draft tokens."""
        last = len(self.verify) - 1
        if num_draft_tokens <= last:
            return self.verify[num_draft_tokens]
        first = min(1, last - 1)  # the first draft token costs more, since it includes the call
        slope = max(0.0, (self.verify[last] - self.verify[first]) / (last - first)) if last else 0.0
        return self.verify[last] + slope * (num_draft_tokens - last)

    def step_costs(self, most: int) -> list[float]:
        """Costs of a step with 0, 1, 2 … `most` draft tokens."""
        return [count * self.draft + self.verify_cost(count) for count in range(most + 1)]

    def to_dict(self) -> dict[str, Any]:
        """The costs as plain JSON values."""
        return asdict(self) | {"verify": list(self.verify)}


def read_costs(path: Path, with_head: bool, weights: str) -> dict[str, Any]:
    """Measurements of `bench --write-costs`, as fields of a pair; those of the head only with
    `with_head`. Those with weights of this kind, such as "int8", are under its name, if it has
    any of its own."""
    if not path.is_file():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    data = data.get(weights, data)
    fields: dict[str, Any] = {"measured_costs": _cost_table(data)}
    if with_head and "head" in data:
        fields |= {
            "measured_head_costs": _cost_table(data["head"]),
            "fastest_drafter": data["fastest_drafter"],
        }
    return fields


def _cost_table(data: dict[str, Any]) -> CostTable:
    return CostTable(float(data["draft"]), tuple(float(cost) for cost in data["verify"]))
