"""Expected and observed acceptance of a run's draft tokens: separates luck from the draft's
quality.

Every judged draft token is accepted with probability α (`expected_accept`), whatever happened
before. So accepted − Σ α is a martingale, and the variance of the accepted number around its
expectation is Σ α(1 − α).
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from naive_speculate.events.event import Event, EventKind

_NO_DIFFERENCE = 0.005


def two(share: float) -> str:
    """A share with two digits, a half rounded up, as the page rounds."""
    return f"{math.floor(share * 100 + 0.5) / 100:.2f}"


@dataclass(frozen=True, slots=True)
class ExpectedAcceptance:
    """Expected and observed acceptance of a run's draft tokens."""

    judged: int  # draft tokens that the verifier judged
    kept: int  # accepted draft tokens
    expected: float  # expected number of accepted ones: Σ α over the judged tokens
    variance: float  # variance of the accepted number: Σ α(1 − α)
    by_place: tuple[float, ...]  # mean α per index of the window, over the steps that reached it
    # whether tokens were judged one by one. Block verification judges windows as a whole; then
    # `expected` is the value for judging one by one, and the accepted number does not vary around
    # it
    one_by_one: bool = True

    @property
    def alpha(self) -> float:
        return self.expected / self.judged

    @property
    def deviation(self) -> float:
        """Of the observed α for this number of verdicts."""
        return math.sqrt(self.variance) / self.judged

    @property
    def observed(self) -> float:
        return self.kept / self.judged

    @property
    def spread(self) -> str:
        width = self.deviation
        return f"{two(self.alpha)} ± {f'{max(0.001, width):.3f}' if width < 0.005 else two(width)}"

    def __str__(self) -> str:
        if not self.one_by_one:
            return (
                f"Judged one by one, this draft's α would be {two(self.alpha)}; block verification"
                " judges the window as a whole"
            )
        if self.variance <= 0:
            return f"This draft's exact α is {two(self.alpha)}; nothing here is random"
        off = (self.observed - self.alpha) / self.deviation
        luck = f"{'a little' if abs(off) < 2 else 'much'} {'good' if off > 0 else 'bad'} luck"
        return (
            f"This draft's exact α is {self.spread}; observed {two(self.observed)},"
            f" {'as expected' if abs(off) < 1 else luck}"
        )


class Expectation:
    """Of a run so far: takes its events in order."""

    def __init__(self) -> None:
        self._drafted: dict[int, list[float | None]] = defaultdict(list)  # of the step, by row
        self._sums: list[float] = []  # Σ α per index of the window
        self._reached: list[int] = []  # steps that reached the index
        self._kept, self._variance = 0, 0.0
        self._one_by_one = self._complete = True

    def add(self, event: Event) -> None:
        """Add the run's next event. A loaded trace may hold any number: α is bounded."""
        if event.kind == EventKind.STARTED:
            settings = event.settings or {}
            whole = settings.get("verify_strategy") == "block_verification"
            self._one_by_one &= not whole or settings.get("temperature") == 0
        elif event.kind == EventKind.PROPOSED:
            self._drafted[event.row].append(event.expected_accept)
        elif event.kind == EventKind.STEP:
            accepted = max(0, min(event.num_accepted or 0, event.num_draft or 0))
            judged = self._drafted.pop(event.row, [])[: accepted + 1]
            alphas = [min(1.0, max(0.0, alpha)) for alpha in judged if alpha is not None]
            self._complete &= len(alphas) >= min(event.num_draft or 0, accepted + 1)
            self._kept += accepted
            self._variance += math.fsum(alpha * (1 - alpha) for alpha in alphas)
            longer = len(alphas) - len(self._sums)
            self._sums += [0.0] * longer
            self._reached += [0] * longer
            for place, alpha in enumerate(alphas):
                self._sums[place] += alpha
                self._reached[place] += 1

    @property
    def figures(self) -> ExpectedAcceptance | None:
        """As `expected_acceptance`."""
        if not self._complete or not self._reached:
            return None
        return ExpectedAcceptance(
            judged=sum(self._reached),
            kept=self._kept,
            expected=math.fsum(self._sums),
            variance=self._variance,
            by_place=tuple(
                total / steps for total, steps in zip(self._sums, self._reached, strict=True)
            ),
            one_by_one=self._one_by_one,
        )


def expected_acceptance(events: Iterable[Event]) -> ExpectedAcceptance | None:
    """None where nothing was judged, or the events lack `expected_accept`."""
    expectation = Expectation()
    for event in events:
        expectation.add(event)
    return expectation.figures


@dataclass(frozen=True, slots=True)
class DraftSamplingRates:
    """Both ways to draft with a model, compared at the indexes that a run judged."""

    judged: int  # draft tokens that were judged
    # mean acceptance rate of tokens drawn from the draft model's distribution: Σ min(p, q), or
    # Σ p·q under sample matching
    sampled: float
    argmax: float  # mean acceptance rate of its most probable tokens: p(argmax q)
    used: str  # what the run did, "sampled" or "argmax"

    @property
    def better(self) -> str | None:
        """None where the two differ by less than half a percent."""
        if abs(self.sampled - self.argmax) < _NO_DIFFERENCE:
            return None
        return "sampled" if self.sampled > self.argmax else "argmax"

    def __str__(self) -> str:
        rates = {"sampled": self.sampled, "argmax": self.argmax}
        own, other = rates.pop(self.used), rates.popitem()
        better = "no difference" if self.better is None else f"{self.better} drafts are better here"
        return (
            f"{self.used} drafts are accepted {own:.0%} of the time, {other[0]} drafts would be"
            f" {other[1]:.0%}: {better}"
        )


def draft_sampling_rates(events: Iterable[Event]) -> DraftSamplingRates | None:
    """None where they are unknown, as for copies."""
    rates, used, matches = [], "sampled", False
    for event in events:
        if event.kind == EventKind.STARTED:
            used = (event.settings or {}).get("draft_sampling", used)
            matches = (event.settings or {}).get("verify_strategy") == "sample_match"
        judged = event.kind in (EventKind.ACCEPTED, EventKind.REJECTED)
        drawn = event.matched_accept if matches else event.sampled_accept
        if judged and drawn is not None and event.argmax_accept is not None:
            rates.append((drawn, event.argmax_accept))
    if not rates:
        return None
    sampled, argmax = (math.fsum(values) / len(rates) for values in zip(*rates, strict=True))
    return DraftSamplingRates(
        len(rates), sampled, argmax, "argmax" if used == "argmax" else "sampled"
    )
