"""Costs of drafting and verifying, relative to a plain step: from a table, or learned while running."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs in units of the target's forward over one token."""

    draft: float  # one draft forward
    verify: tuple[float, ...] = (1.0,)  # a target forward over 1, 2, 3 … tokens; extrapolated with the mean growth from 2 on

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
        return asdict(self) | {"verify": list(self.verify)}


class LearnedCosts:
    """The costs of one drafter's steps on this machine, learned while running; a table, measured elsewhere or estimated, is the
    prior.

    The seconds of a verification are fitted as a + b · (the table's cost - 1) by least squares. Recent steps weigh more, and
    the prior is b = a. Those of drafting are the table's times a factor, or part of the verification where the table has no
    cost per draft. Larger batches have fits of their own.
    """

    def __init__(self, prior: CostTable) -> None:
        self.prior = prior
        self._fits: dict[int, _Fit] = {}

    def learn(self, num_rows: int, num_drafts: int, draft_seconds: float, verify_seconds: float) -> None:
        """Learn from a step of so many rows, the widest of whose windows had so many drafts; 0 seconds for copied ones."""
        fit = self._fits.setdefault(num_rows.bit_length(), _Fit())
        if num_drafts and draft_seconds and self.prior.draft:
            fit.add_draft(num_drafts * self.prior.draft, draft_seconds)
        elif num_drafts:  # the table counts the drafting as part of the verification
            verify_seconds += draft_seconds
        fit.add(self.prior.verify_cost(num_drafts) - 1, verify_seconds)

    def table(self, num_rows: int = 1) -> CostTable:
        """The costs in a batch of so many rows; the prior before anything was learned."""
        if (fit := self._fits.get(num_rows.bit_length())) is None:
            return self.prior
        plain, growth, drafting = fit.solved()
        return CostTable(
            self.prior.draft * drafting / plain,
            tuple(1 + growth / plain * (cost - 1) for cost in self.prior.verify),
        )


class _Fit:
    """Sums for the fit of seconds to costs. A step that took over three times as long as expected counts as three times."""

    _MEMORY, _TRUST, _MOST = 0.99, 0.3, 3.0

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        self._costs = self._seconds = 0.0

    def add(self, growth: float, seconds: float) -> None:
        if self._n:
            plain, slope, _ = self.solved()
            seconds = min(seconds, self._MOST * (plain + slope * growth))
        old = self._MEMORY
        self._n, self._x, self._y = old * self._n + 1, old * self._x + growth, old * self._y + seconds
        self._xx, self._xy = old * self._xx + growth**2, old * self._xy + growth * seconds

    def add_draft(self, costs: float, seconds: float) -> None:
        if self._costs:
            seconds = min(seconds, self._MOST * costs * self._seconds / self._costs)
        self._costs, self._seconds = self._MEMORY * self._costs + costs, self._MEMORY * self._seconds + seconds

    def solved(self) -> tuple[float, float, float]:
        """Seconds of a plain step, of a verification per unit of growth, and of drafting per unit of the table."""
        trust = self._TRUST  # of the prior, that the table's growth is right: trust · (b - a)² is added to the squares
        a, b, c = self._n + trust, self._x - trust, self._xx + trust
        plain = (self._y * c - self._xy * b) / (a * c - b * b)
        growth = (self._xy * a - self._y * b) / (a * c - b * b)
        plain = max(plain, 0.1 * self._y / self._n)
        return plain, max(growth, 0.0), self._seconds / self._costs if self._costs else plain


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
    return CostTable(float(data["draft"]), tuple(float(cost) for cost in data["verify"]))
