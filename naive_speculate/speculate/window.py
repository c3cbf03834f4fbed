"""How many tokens to draft: a fixed number, or "auto", which aims at the least time per token.

For "auto", drafting one more token costs a draft forward and a wider verification, and gains a token with the probability
that all drafts up to it are kept. Drafting goes on while that lowers the expected cost per token of the step (the trade-off of
Leviathan et al. 2023, arXiv 2211.17192, section 3.5, taken token by token). How likely a draft is kept is learned while
running, separately for degrees of the draft model's confidence. Costs come from a table that is fixed for the run, so that a
seed repeats the run exactly.
"""

from copy import copy
from itertools import pairwise

from naive_speculate.costs import CostTable

MAX_AUTO_WINDOW = 16
_PROBE_EVERY = 8
_BUCKETS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95)
_MEMORY = 0.97


class FixedWindow:
    """Always the same number of drafts."""

    adaptive = False

    def __init__(self, num_draft_tokens: int) -> None:
        self.limit = num_draft_tokens

    def max_drafts(self) -> int:
        """The most drafts that this step may have."""
        return self.limit

    def should_continue(self, confidence: float) -> bool:
        """Whether to draft another token after one that the draft gave this probability."""
        return True

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

    def __init__(self, costs: CostTable) -> None:
        self.costs = costs
        # Pseudo-counts: a draft is at first believed as far as it believes itself.
        self._kept = [4 * middle for middle in _middles()]
        self._seen = [4.0] * (len(_BUCKETS) + 1)
        self._steps_without_drafts = 0
        self._window: list[int] = []
        self._reach = 1.0
        self._expected = 1.0

    def max_drafts(self) -> int:
        """The most drafts that this step may have; 0 where drafting does not pay, but for a probe now and then."""
        self._window, self._reach, self._expected = [], 1.0, 1.0
        if self._pays() or self._steps_without_drafts >= _PROBE_EVERY:
            self._steps_without_drafts = 0
            return MAX_AUTO_WINDOW
        self._steps_without_drafts += 1
        return 0

    def should_continue(self, confidence: float) -> bool:
        """Whether to draft another token after one that the draft gave this probability."""
        bucket = _bucket(confidence)
        self._window.append(bucket)
        self._reach *= self._kept[bucket] / self._seen[bucket]
        self._expected += self._reach
        return self._pays()

    def learn(self, num_accepted: int, num_judged: int) -> None:
        """Take note of a verdict."""
        for place, bucket in enumerate(self._window[:num_judged]):
            self._seen[bucket] = _MEMORY * self._seen[bucket] + 1
            self._kept[bucket] = _MEMORY * self._kept[bucket] + (place < num_accepted)

    def saved(self) -> "AutoWindow":
        """The window as it stands before a step, to go back to while that step's verdict was not learned."""
        return copy(self)

    def _pays(self) -> bool:
        drafted = len(self._window)
        spent = drafted * self.costs.draft + self.costs.verify_cost(drafted)
        extra = self.costs.draft + self.costs.verify_cost(drafted + 1) - self.costs.verify_cost(drafted)
        gain = self._reach * sum(self._kept) / sum(self._seen)
        return gain * spent / self._expected > extra


Window = FixedWindow | AutoWindow


def _bucket(confidence: float) -> int:
    return sum(confidence >= edge for edge in _BUCKETS)


def _middles() -> list[float]:
    edges = (0.0, *_BUCKETS, 1.0)
    return [(low + high) / 2 for low, high in pairwise(edges)]
