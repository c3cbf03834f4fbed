"""Luck and skill of a run's drafts told apart: how many should have been kept, beside how many were.

At every place that was judged, a draft was to be kept with the probability α that its event tells as `expected_accept`,
whatever had happened before. So kept − Σ α is a martingale, and the variance of the kept drafts around their expected number
is Σ α(1 − α).
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from naive_speculate.events.event import Event, EventKind
from naive_speculate.theory import expected_tokens


@dataclass(frozen=True, slots=True)
class ExpectedAcceptance:
    """What the drafts of a run were worth.

    Attributes:
        judged: Drafts that the verifier judged.
        kept: Those that it kept.
        expected: How many of them were to be kept: Σ α over the judged places.
        variance: Of the kept ones around that: Σ α(1 − α).
        by_place: Mean α at each place of the window, over the rounds that reached it.
        one_by_one: Whether drafts were judged one by one. Block verification does not: then `expected` is what judging them so
            would keep, and the kept ones do not vary around it.
    """

    judged: int
    kept: int
    expected: float
    variance: float
    by_place: tuple[float, ...]
    one_by_one: bool = True

    @property
    def alpha(self) -> float:
        """The drafts' exact α: the mean over the judged places."""
        return self.expected / self.judged

    @property
    def deviation(self) -> float:
        """One standard deviation of the observed α around the exact one, in as many verdicts."""
        return math.sqrt(self.variance) / self.judged

    @property
    def observed(self) -> float:
        """The α that was seen: kept ÷ judged."""
        return self.kept / self.judged

    @property
    def luck(self) -> float | None:
        """By how many standard deviations more were kept than expected; None where nothing was left to luck."""
        if not self.one_by_one or self.variance <= 0:
            return None
        return (self.kept - self.expected) / math.sqrt(self.variance)

    def expected_tokens(self, k: int) -> float:
        """Tokens that a round with k such drafts gives on average: equation 1 of Leviathan et al. 2023."""
        return expected_tokens(self.alpha, k)

    def __str__(self) -> str:
        """In a sentence."""
        if not self.one_by_one:
            return f"judged one by one, this draft's α would be {self.alpha:.2f}; windows are judged as a whole"
        if self.luck is None:
            return f"this draft's α is {self.alpha:.2f}, and nothing was left to luck"
        return f"this draft's α is {self.alpha:.2f} ± {self.deviation:.2f}; seen was {self.observed:.2f}"


def expected_acceptance(events: Iterable[Event], row: int | None = None) -> ExpectedAcceptance | None:
    """What the drafts of a run, whole or so far, were worth: of one sequence, or counting every event without a row. None where
    nothing was judged, or the events do not tell."""
    drafted: dict[int, list[float | None]] = defaultdict(list)  # of the rounds that go on, by row
    alphas: list[list[float]] = []
    kept, one_by_one = 0, True
    for event in events:
        if row is not None and event.row != row:
            continue
        if event.kind == EventKind.STARTED:
            settings = event.settings or {}
            whole = settings.get("verify_strategy") == "block_verification" and settings.get("temperature") != 0
            one_by_one = one_by_one and not whole
        elif event.kind == EventKind.PROPOSED:
            drafted[event.row].append(event.expected_accept)
        elif event.kind == EventKind.STEP:
            accepted = event.num_accepted or 0
            judged = drafted.pop(event.row, [])[: accepted + 1]
            told = [min(1.0, max(0.0, alpha)) for alpha in judged if alpha is not None]  # a loaded trace may claim anything
            if len(told) < min(event.num_draft or 0, accepted + 1):
                return None
            alphas.append(told)
            kept += accepted
    total = sum(map(len, alphas))
    if not total:
        return None
    places = [[window[place] for window in alphas if len(window) > place] for place in range(max(map(len, alphas)))]
    return ExpectedAcceptance(
        judged=total,
        kept=kept,
        expected=math.fsum(alpha for window in alphas for alpha in window),
        variance=math.fsum(alpha * (1 - alpha) for window in alphas for alpha in window),
        by_place=tuple(math.fsum(place) / len(place) for place in places),
        one_by_one=one_by_one,
    )
