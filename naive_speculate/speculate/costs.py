"""Costs of drafting and verifying, relative to a plain step, learned while running."""

from collections import Counter, deque
from contextlib import suppress
from typing import NamedTuple

from naive_speculate.infer.costs import CostTable
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.theory import all_accepted, expected_by_window, speedups

_TURNS, _PLAIN_TURN, _DRAFT_TURN = 32, 1, 17
_TRUST, _PRIOR_ACCEPTANCE, _MEMORY = 8.0, 0.5, 0.99  # of the acceptance rate
_MOST_NOTES = 1024  # steps; older ones would count for nothing


class StepCosts(NamedTuple):
    """What one step cost: its widest window's number of drafts, the seconds of drafting (0 for
    copied ones) and of verification, and how many drafts were accepted and judged."""

    num_drafts: int
    draft_seconds: float
    verify_seconds: float
    accepted: int = 0
    judged: int = 0


class AcceptanceRate:
    """An acceptance rate that is learned from verdicts; recent ones weigh more. `prior`: the rate
    before any, which counts as `trust` verdicts; `memory`: an older verdict's weight per newer
    one."""

    def __init__(self, prior: float, trust: float, memory: float) -> None:
        self._accepted, self._judged, self._memory = trust * prior, trust, memory

    def add(self, accepted: int, judged: int = 1) -> None:
        """Learn from verdicts."""
        self._accepted = self._memory * self._accepted + accepted
        self._judged = self._memory * self._judged + judged

    @property
    def value(self) -> float:
        return self._accepted / self._judged


class LearnedCosts:
    """The costs of one drafter's steps on this machine, learned while running; a table, measured
    elsewhere or estimated, is the prior.

    The seconds of a verification are fitted as a + b · (the table's cost - 1) by least squares.
    Recent steps weigh more, and the prior is b = a. The seconds per draft are the table's times
    a learned factor; if the table has none, drafting counts as verification. Larger batches have
    fits of their own: before they are learned, a forward over several rows costs what the table
    says of as many tokens.
    """

    def __init__(self, prior: CostTable) -> None:
        self.prior = prior
        self._fits: dict[int, _Fit] = {}
        self._steps = Counter[int]()  # by batch size, as the fits
        self._acceptance = AcceptanceRate(_PRIOR_ACCEPTANCE, _TRUST, _MEMORY)
        # the last steps, each with its number of rows, and its costs where it can be learned from;
        # they are learned for the next window or table
        self.notes: deque[tuple[int, StepCosts | None]] = deque(maxlen=_MOST_NOTES)

    def count(self, num_rows: int) -> None:
        """Count a step of so many rows, whether or not it can be learned from."""
        self._steps[num_rows.bit_length()] += 1

    def _learn_noted(self) -> None:
        with suppress(IndexError):  # other threads may learn, too
            while self.notes:
                num_rows, costs = self.notes.popleft()
                self.count(num_rows)
                if costs is not None:
                    self.learn(num_rows, costs)

    def learn(self, num_rows: int, costs: StepCosts) -> None:
        """Learn from a step of so many rows."""
        num_drafts, draft_seconds, verify_seconds, accepted, judged = costs
        self._acceptance.add(accepted, judged)
        fit = self._fits.setdefault(num_rows.bit_length(), _Fit(0.3 if num_rows == 1 else 0.03))
        if num_drafts and draft_seconds and self.prior.draft:
            fit.add_draft(num_drafts * self.prior.draft, draft_seconds)
        elif num_drafts:  # the table counts the drafting as part of the verification
            verify_seconds += draft_seconds
        fit.add(self._verify_cost(num_rows, num_drafts) - 1, verify_seconds)

    def window(self, num_rows: int, most: int) -> int:
        """How many drafts of each row, at most so many, give a batch most tokens per time.

        All rows draft as many, since a forward is as wide as its widest window. Of `_TURNS`
        steps one has no drafts, or else their cost and a plain step's could not be separated,
        and one has two, which show how many are accepted.
        """
        self._learn_noted()
        turn = self._steps[num_rows.bit_length()] % _TURNS
        if turn in (_PLAIN_TURN, _DRAFT_TURN):
            return 0 if turn == _PLAIN_TURN else min(most, 2)
        tokens = expected_by_window(all_accepted(self._acceptance.value, most))
        speeds = speedups(tokens, self.table(num_rows).step_costs(most))
        return max(range(most + 1), key=speeds.__getitem__)

    def table(self, num_rows: int = 1) -> CostTable:
        """The costs in a batch of so many rows; the prior before anything was learned."""
        self._learn_noted()
        fit = self._fits.get(num_rows.bit_length())
        if fit is None and num_rows == 1:
            return self.prior
        plain, growth, drafting = (1.0, 1.0, 1.0) if fit is None else fit.solved()
        return CostTable(
            self.prior.draft * drafting / plain,
            tuple(
                1 + growth / plain * (self._verify_cost(num_rows, count) - 1)
                for count in range(len(self.prior.verify))
            ),
        )

    def _verify_cost(self, num_rows: int, num_drafts: int) -> float:
        """The prior cost of verifying so many drafts of each row, relative to a plain step of
        the rows."""
        cost = self.prior.verify_cost
        return cost(num_rows * (1 + num_drafts) - 1) / cost(num_rows - 1)


class _Fit:
    """Sums for the fit of seconds to costs. A step that took over three times as long as
    expected counts as three times."""

    _MEMORY, _MOST = 0.99, 3.0

    def __init__(self, trust: float) -> None:
        self._trust = trust  # in the prior's growth: trust · (b - a)² is added to the squares
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        self._costs = self._seconds = 0.0

    def add(self, growth: float, seconds: float) -> None:
        if self._n:
            plain, slope, _ = self.solved()
            seconds = min(seconds, self._MOST * (plain + slope * growth))
        old = self._MEMORY
        self._n, self._x, self._y = (
            old * self._n + 1,
            old * self._x + growth,
            old * self._y + seconds,
        )
        self._xx, self._xy = old * self._xx + growth**2, old * self._xy + growth * seconds

    def add_draft(self, costs: float, seconds: float) -> None:
        if self._costs:
            seconds = min(seconds, self._MOST * costs * self._seconds / self._costs)
        self._costs, self._seconds = (
            self._MEMORY * self._costs + costs,
            self._MEMORY * self._seconds + seconds,
        )

    def solved(self) -> tuple[float, float, float]:
        """Seconds of a plain step, of a verification per unit of growth, and of drafting per
        unit of the table."""
        a, b, c = self._n + self._trust, self._x - self._trust, self._xx + self._trust
        plain = (self._y * c - self._xy * b) / (a * c - b * b)
        growth = (self._xy * a - self._y * b) / (a * c - b * b)
        plain = max(plain, 0.1 * self._y / self._n)
        return plain, max(growth, 0.0), self._seconds / self._costs if self._costs else plain


def learned_costs(pair: ModelPair, drafter: str) -> LearnedCosts:
    """The costs of a pair with a drafter, learned from the steps that this process makes with
    the pair."""
    if drafter not in pair.learned:
        pair.learned[drafter] = LearnedCosts(pair.costs(drafter))
    costs: LearnedCosts = pair.learned[drafter]
    return costs
