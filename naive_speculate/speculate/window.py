"""How many tokens to draft: a fixed number, or "auto", which aims at the least time per token.

For "auto", drafting one more token costs a draft forward and a wider verification, and gains a token with the probability
that all drafts up to it are kept. Drafting goes on while some number of further drafts gains more tokens than the same time
gives at the best rate of the run (the trade-off of Leviathan et al. 2023, arXiv 2211.17192, section 3.5, taken token by
token). How likely a draft is kept is learned while running, separately for degrees of the draft's confidence; how likely the
next one is, before its confidence is known, from all. Costs come from a table that is fixed for the run, so that a seed repeats
it exactly.

Where one call drafts several tokens, the length with the best rate is decided before it. Confidence then ends the part that is
verified, since what was drafted is paid for, and decides whether another call pays.

A window ends behind a token that was drawn. To drop that token for its own probability would not be lossless.
"""

from collections.abc import Iterator
from copy import copy
from itertools import pairwise

from naive_speculate.costs import CostTable

MAX_AUTO_WINDOW = 16
_PROBE_EVERY = 8
_LENGTHS = (2, 3, 5, 8)
"""Of calls that draft several tokens: each length takes a graph of its own, with its own copy of the weights."""
_MORE = 4
"""Tokens of a call where that was not decided."""
# What drafts of a confidence are worth before any verdict; the last are certain ones, as of a lookup. A greedy draft of little
# confidence is often wrong; a drawn one is less, for where the draft doubts, so does the target. With the bundled pair greedy
# ones are worth more still.
_BUCKETS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95, 1.0)
_GREEDY_PRIOR = (0.45, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.55)
_DRAWN_PRIOR = (0.65, 0.75, 0.75, 0.7, 0.7, 0.75, 0.8, 0.95, 0.55)
_PRIOR_OF_ANY, _PRIOR_OF_COPIES = 0.85, 0.75
# How many verdicts that is worth, of a confidence and of any, and how long those of the run count: whether a text as a whole is
# easy or hard is soon known; a copy is kept or not by where it was found.
_TRUST, _TRUST_OF_ANY, _MEMORY = 8.0, 8.0, 0.99
_COPY_TRUST, _COPY_MEMORY = 6.0, 0.97


class FixedWindow:
    """Always the same number of drafts; fewer behind one of which the draft is not sure, where that is asked for.

    Attributes:
        limit: The number.
        adaptive: Whether the draft's confidence matters.
    """

    def __init__(self, num_draft_tokens: int, least_confidence: float | None = None) -> None:
        self.limit = num_draft_tokens
        self.adaptive = least_confidence is not None
        self._least = least_confidence or 0.0

    def max_drafts(self) -> int:
        """The most drafts that this step may have."""
        return self.limit

    def next_call(self) -> int:
        """How many drafts the next call is to make, where one makes several."""
        return _MORE if self.adaptive else self.limit

    def restart(self) -> None:
        """What was drafted in this step is drafted anew."""

    def should_continue(self, confidence: float) -> bool:
        """Whether to draft another token after one that the draft gave this probability."""
        return confidence >= self._least

    def learn(self, num_accepted: int, num_judged: int) -> None:
        """Take note of a verdict."""

    @property
    def drafts(self) -> bool:
        """Whether anything is ever drafted."""
        return self.limit > 0

    def saved(self) -> "FixedWindow":
        """The window as it stands; there is nothing in it that changes."""
        return self


class AutoWindow:
    """Adapts the window to the draft's confidence and the recent acceptance."""

    adaptive = True
    drafts = True

    def __init__(self, costs: CostTable, least_confidence: float | None = None, *, greedy: bool = False) -> None:
        self.costs = costs
        self._least = least_confidence or 0.0
        # Pseudo-counts: a draft is at first believed as far as such drafts mostly deserve.
        prior = _GREEDY_PRIOR if greedy else _DRAWN_PRIOR
        trust, of_any, any_prior, self._memory = _TRUST, _TRUST_OF_ANY, _PRIOR_OF_ANY, _MEMORY
        if not costs.draft:
            trust, of_any, any_prior, self._memory = _COPY_TRUST, _COPY_TRUST, _PRIOR_OF_COPIES, _COPY_MEMORY
        self._kept = [trust * share for share in prior]
        self._seen = [trust] * len(prior)
        self._any_kept, self._any_seen = of_any * any_prior, of_any
        verify = [costs.verify_cost(count) for count in range(MAX_AUTO_WINDOW + 1)]
        self._verify_one_more = [more - less for less, more in pairwise(verify)]
        self._steps_without_drafts = 0
        self._paid = self._length = 0  # drafts that are made in any case, and by a call
        self._window: list[int] = []
        self._reach = 1.0
        self._rate = 1.0

    def max_drafts(self) -> int:
        """The most drafts that this step may have; 0 where drafting does not pay, but for a probe now and then."""
        self.restart()
        rates = [tokens / cost for tokens, cost in self._ahead(1.0, 1.0, self.costs.verify_cost(0))]
        self._rate = max(rates)
        if self._pays() or self._steps_without_drafts >= _PROBE_EVERY:
            self._steps_without_drafts = 0
            if self.costs.call is not None:
                self._paid = self._length = max(_LENGTHS, key=lambda length: rates[length - 1])
            return MAX_AUTO_WINDOW
        self._steps_without_drafts += 1
        return 0

    def next_call(self) -> int:
        """As for `FixedWindow`; where a batch's calls are longer than this window's own, more than what is left of those."""
        left = self._paid - len(self._window)
        return next(length for length in _LENGTHS if length >= left) if self._paid else _MORE

    def restart(self) -> None:
        """What was drafted in this step is drafted anew."""
        self._window, self._reach, self._paid = [], 1.0, 0

    def should_continue(self, confidence: float) -> bool:
        """Whether to draft another token after one that the draft gave this probability."""
        bucket = _bucket(confidence)
        self._window.append(bucket)
        self._reach *= self._kept[bucket] / self._seen[bucket]
        if confidence < self._least or not self._pays():
            return False
        if len(self._window) == self._paid:
            self._paid += self._length
        return True

    def learn(self, num_accepted: int, num_judged: int) -> None:
        """Take note of a verdict."""
        for place, bucket in enumerate(self._window[:num_judged]):
            kept = place < num_accepted
            self._seen[bucket] = self._memory * self._seen[bucket] + 1
            self._kept[bucket] = self._memory * self._kept[bucket] + kept
            self._any_seen = self._memory * self._any_seen + 1
            self._any_kept = self._memory * self._any_kept + kept

    def saved(self) -> "AutoWindow":
        """The window as it stands before a step, to go back to while that step's verdict was not learned."""
        return copy(self)

    def _pays(self) -> bool:
        """Whether some number of further drafts gains more tokens than the same time gives at the run's rate."""
        another_call = len(self._window) == self._paid > 0  # the first is in the table
        call = (self.costs.call or 0.0) if another_call else 0.0
        return any(gain > self._rate * cost for gain, cost in self._ahead(self._reach, 0.0, call))

    def _ahead(self, reach: float, tokens: float, cost: float) -> Iterator[tuple[float, float]]:
        """Expected tokens and costs with one draft more, two more …"""
        share = self._any_kept / self._any_seen
        for more in range(len(self._window) + 1, MAX_AUTO_WINDOW + 1):
            reach *= share
            tokens += reach
            cost += self._verify_one_more[more - 1]
            if more > self._paid:
                cost += self.costs.draft
            yield tokens, cost


Window = FixedWindow | AutoWindow


def _bucket(confidence: float) -> int:
    return sum(confidence >= edge for edge in _BUCKETS)
