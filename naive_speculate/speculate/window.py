"""How many tokens to draft: a fixed number, or "auto", which aims at the least time per token.

For "auto", drafting one more token costs a draft forward and a wider verification, and gains a token with the probability
that all drafts up to it are kept. Drafting goes on while some number of further drafts gains more tokens than the same time
gives at the best rate of the run (the trade-off of Leviathan et al. 2023, arXiv 2211.17192, section 3.5, taken token by
token). How likely a draft is kept is learned while running, separately for degrees of the draft's confidence; how likely the
next one is, before its confidence is known, from all. Costs come from a table that is fixed for the run, so that a seed repeats
it exactly.

A window ends behind a token that was drawn. To drop that token for its own probability would not be lossless.
"""

from collections.abc import Iterator
from copy import copy

from naive_speculate.costs import CostTable

MAX_AUTO_WINDOW = 16
_PROBE_EVERY = 8
# What drafts of a confidence are worth before any verdict, as with the bundled pair; the last are certain ones, as of a lookup.
# A greedy draft of little confidence is mostly wrong; a drawn one is not, for where the draft doubts, so does the target.
_BUCKETS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95, 1.0)
_GREEDY_PRIOR = (0.3, 0.4, 0.55, 0.65, 0.7, 0.85, 0.9, 0.95, 0.55)
_DRAWN_PRIOR = (0.65, 0.75, 0.75, 0.7, 0.7, 0.75, 0.8, 0.95, 0.55)
_PRIOR_OF_ANY = 0.75
_TRUST = 6.0
_MEMORY = 0.97


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
        self._kept = [_TRUST * share for share in prior]
        self._seen = [_TRUST] * len(prior)
        self._any_kept, self._any_seen = _TRUST * _PRIOR_OF_ANY, _TRUST
        self._steps_without_drafts = 0
        self._window: list[int] = []
        self._reach = 1.0
        self._rate = 1.0

    def max_drafts(self) -> int:
        """The most drafts that this step may have; 0 where drafting does not pay, but for a probe now and then."""
        self.restart()
        share = self._any_kept / self._any_seen
        self._rate = max(tokens / cost for tokens, cost in self._ahead(share, 1.0, 1.0, self.costs.verify_cost(0)))
        if self._pays() or self._steps_without_drafts >= _PROBE_EVERY:
            self._steps_without_drafts = 0
            return MAX_AUTO_WINDOW
        self._steps_without_drafts += 1
        return 0

    def restart(self) -> None:
        """What was drafted in this step is drafted anew."""
        self._window, self._reach = [], 1.0

    def should_continue(self, confidence: float) -> bool:
        """Whether to draft another token after one that the draft gave this probability."""
        bucket = _bucket(confidence)
        self._window.append(bucket)
        self._reach *= self._kept[bucket] / self._seen[bucket]
        return confidence >= self._least and self._pays()

    def learn(self, num_accepted: int, num_judged: int) -> None:
        """Take note of a verdict."""
        for place, bucket in enumerate(self._window[:num_judged]):
            kept = place < num_accepted
            self._seen[bucket] = _MEMORY * self._seen[bucket] + 1
            self._kept[bucket] = _MEMORY * self._kept[bucket] + kept
            self._any_seen = _MEMORY * self._any_seen + 1
            self._any_kept = _MEMORY * self._any_kept + kept

    def saved(self) -> "AutoWindow":
        """The window as it stands before a step, to go back to while that step's verdict was not learned."""
        return copy(self)

    def _pays(self) -> bool:
        """Whether some number of further drafts gains more tokens than the same time gives at the run's rate."""
        share = self._any_kept / self._any_seen
        return any(gain > self._rate * cost for gain, cost in self._ahead(share, self._reach, 0.0, 0.0))

    def _ahead(self, share: float, reach: float, tokens: float, cost: float) -> Iterator[tuple[float, float]]:
        """Expected tokens and costs with one draft more, two more …"""
        drafted = len(self._window)
        for more in range(drafted + 1, MAX_AUTO_WINDOW + 1):
            reach *= share
            tokens += reach
            cost += self.costs.draft + self.costs.verify_cost(more) - self.costs.verify_cost(more - 1)
            yield tokens, cost


Window = FixedWindow | AutoWindow


def _bucket(confidence: float) -> int:
    return sum(confidence >= edge for edge in _BUCKETS)
