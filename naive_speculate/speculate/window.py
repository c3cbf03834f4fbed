"""How many tokens to draft: a fixed number, or "auto", which aims at the least time per token.

For "auto", one more draft costs a draft forward and a wider verification, and gains a token with
the probability that all drafts up to it are accepted. Drafting continues while some number of
further drafts gains more tokens than the same time gives at the best rate of the run (Leviathan
et al. 2023, arXiv 2211.17192, section 3.5, applied token by token). Acceptance rates are learned
while running, one for each range of the draft's confidence; before a draft's confidence is
known, the rate of all drafts counts. The cost of a step is also learned, starting from a table.
If the request has a seed, the costs are the table's, so that the seed repeats the run. In a
batch, windows are at most as long as pays for all its rows together.

A window ends after a sampled token. Dropping that token because of its own probability would not
be lossless.
"""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import replace
from typing import Self

from naive_speculate.infer.costs import CostTable
from naive_speculate.speculate.costs import AcceptanceRate, LearnedCosts
from naive_speculate.speculate.theory import all_accepted, expected_by_window, speedups

MAX_AUTO_WINDOW = 16
_PROBE_EVERY = 8
# Prior acceptance rates by confidence; the last is for certain drafts. A greedy draft of low
# confidence is often rejected (by SmolLM2, of its head's, 0.11, 0.22, 0.40, 0.60, 0.73, 0.89, 0.97,
# 1.00 are accepted); the tales pair's, made for its target, less often. A sampled
# draft is rejected less often: where the draft is uncertain, so is the target. Copied drafts have
# their own prior; see `chance`.
_BUCKETS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95, 1.0)
_GREEDY_PRIOR = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.55)
_DRAWN_PRIOR = (0.65, 0.75, 0.75, 0.7, 0.7, 0.75, 0.8, 0.95, 0.55)
_COPY_PRIOR = (0.05, 0.15, 0.3, 0.4, 0.51, 0.71, 0.84, 0.95, 0.55)
_PRIOR_OF_ANY, _PRIOR_OF_COPIES = 0.85, 0.75
# The weight of the priors in verdicts, and the decay of the run's own verdicts.
_TRUST, _MEMORY = 8.0, 0.99
_COPY_TRUST, _COPY_MEMORY = 6.0, 0.97


class Window(ABC):
    """How many tokens to draft for a row. `limit`: the most; `copy_limit`, `ask_limit`: the most
    of this step, where a drafter copies or asks a model; `adaptive`: whether the draft's
    confidence can end a window; `fixed`: whether every window ends at `limit`, so that nothing
    is asked or learned."""

    limit = copy_limit = ask_limit = MAX_AUTO_WINDOW
    adaptive, fixed = True, False

    @abstractmethod
    def max_drafts(self, num_rows: int = 1) -> int:
        """The most drafts that this step may have, in a batch of so many rows."""

    @abstractmethod
    def should_continue(self, confidence: float) -> bool:
        """Whether to draft another token after one of this draft probability."""

    def learn(self, num_accepted: int, num_judged: int) -> None:  # noqa: B027
        """Learn from a verdict; a window that never adapts learns nothing."""

    def use(self, copies: bool) -> None:  # noqa: B027 - it matters where the two differ
        """Say whether this step copies or drafts with a model."""

    def saved(self) -> Self:
        """A copy for `SequenceState.restore`, before a step."""
        return copy(self)


class FixedWindow(Window):
    """A fixed number of drafts; fewer after a draft of low confidence, where such a limit is
    given. With `learned`, what the steps of batches cost, a row in a batch of several drafts no
    more than pays."""

    def __init__(
        self,
        num_draft_tokens: int,
        least_confidence: float | None = None,
        learned: LearnedCosts | None = None,
    ) -> None:
        self.limit = self.copy_limit = self.ask_limit = num_draft_tokens
        self.adaptive = least_confidence is not None
        self.fixed = not self.adaptive and learned is None
        self._least = least_confidence or 0.0
        self._learned = learned

    def max_drafts(self, num_rows: int = 1) -> int:
        if self._learned is None or num_rows == 1:
            return self.limit
        return self._learned.window(num_rows, self.limit)

    def should_continue(self, confidence: float) -> bool:
        return confidence >= self._least


class AutoWindow(Window):
    """Adapts the window to the draft's confidence and the recent acceptance.

    Args:
        costs: What a step costs.
        least_confidence: Confidence below which a window ends; None for no limit.
        greedy: Whether drafts are the most probable tokens.
        learned: Costs learned while running; None for those of the table.
        repeats: Whether a row alone uses the table nevertheless, so that its seed repeats the run.
        copies: Whether drafts are copies, which cost no draft forward.
    """

    def __init__(
        self,
        costs: CostTable,
        least_confidence: float | None = None,
        *,
        greedy: bool = False,
        learned: LearnedCosts | None = None,
        repeats: bool = False,
        copies: bool = False,
    ) -> None:
        self._learned, self._copies = learned, copies
        self._alone = costs if repeats else None
        self._use(costs)
        self._least = least_confidence or 0.0
        # Pseudo-counts: acceptance rates are initialised with the priors.
        prior = _GREEDY_PRIOR if greedy else _DRAWN_PRIOR
        trust, any_prior, memory = _TRUST, _PRIOR_OF_ANY, _MEMORY
        if not self.costs.draft:
            prior, any_prior = _COPY_PRIOR, _PRIOR_OF_COPIES
            trust, memory = _COPY_TRUST, _COPY_MEMORY
        self._rates = [AcceptanceRate(rate, trust, memory) for rate in prior]
        self._rate_of_any = AcceptanceRate(any_prior, trust, memory)
        self._steps_without_drafts = 0
        self._window: list[int] = []
        self._tokens: list[float] = []
        self._reach = 1.0
        self._rate = 1.0

    def max_drafts(self, num_rows: int = 1) -> int:
        """See `Window.max_drafts`; 0 where drafting does not pay, except for a probe every few
        steps."""
        self._window, self._reach = [], 1.0
        most = MAX_AUTO_WINDOW
        if self._learned is not None:
            most = most if num_rows == 1 else self._learned.window(num_rows, most)
            self._use(
                self._alone if self._alone and num_rows == 1 else self._learned.table(num_rows)
            )
        self._tokens = expected_by_window(all_accepted(self._rate_of_any.value, MAX_AUTO_WINDOW))
        self._rate = max(speedups(self._tokens, self._step_costs)[1:])
        if self._pays() or self._steps_without_drafts >= _PROBE_EVERY:
            self._steps_without_drafts = 0
            return most
        self._steps_without_drafts += 1
        return 0

    def should_continue(self, confidence: float) -> bool:
        bucket = sum(confidence >= edge for edge in _BUCKETS)
        self._window.append(bucket)
        self._reach *= self._rates[bucket].value
        return confidence >= self._least and self._pays()

    def learn(self, num_accepted: int, num_judged: int) -> None:
        for index, bucket in enumerate(self._window[:num_judged]):
            for rate in (self._rates[bucket], self._rate_of_any):
                rate.add(index < num_accepted)

    def _use(self, costs: CostTable) -> None:
        self.costs = costs = replace(costs, draft=0.0) if self._copies else costs
        self._step_costs = costs.step_costs(MAX_AUTO_WINDOW)

    def _pays(self) -> bool:
        """Whether some number of further drafts gains more tokens than the same time gives at
        the run's best rate."""
        drafted = len(self._window)
        spent, costs = self._step_costs[drafted], self._step_costs[drafted + 1 :]
        return any(
            self._reach * (tokens - 1) > self._rate * (cost - spent)
            for tokens, cost in zip(self._tokens[1:], costs, strict=False)
        )


class CopyOrAskWindow(Window):
    """Two windows of a drafter that copies or asks a model: the two cost and are accepted
    differently. `copying`, `asking`: the windows. A copy costs no draft forward."""

    def __init__(self, copying: AutoWindow, asking: AutoWindow) -> None:
        self._copying, self._asking = copying, asking
        self._used = asking

    def max_drafts(self, num_rows: int = 1) -> int:
        self.copy_limit, self.ask_limit = (
            self._copying.max_drafts(num_rows),
            self._asking.max_drafts(num_rows),
        )
        return max(self.copy_limit, self.ask_limit)

    def use(self, copies: bool) -> None:
        self._used = self._copying if copies else self._asking

    def should_continue(self, confidence: float) -> bool:
        return self._used.should_continue(confidence)

    def learn(self, num_accepted: int, num_judged: int) -> None:
        self._used.learn(num_accepted, num_judged)

    def saved(self) -> Self:
        return type(self)(self._copying.saved(), self._asking.saved())
