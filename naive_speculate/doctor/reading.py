"""What an engine's words say, whichever engine it was."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

ROUNDING = 0.0006
"""How far a printed rate of three decimals may be from the true one."""

MOST_TOKENS = 10**15


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine told of its speculative decoding. What it did not tell is None.

    Attributes:
        engine: Its name.
        format: Which of its formats was read.
        source: The file of the engine that writes the format, and the commit it was read at.
        accepted_per_step: Drafts that were kept, a step.
        drafted_per_step: Drafts, a step: k, or its mean where windows differ.
        other_drafted_per_step: What this is under the format's other meaning, where the account decides for neither.
        rates: By place, the share of all steps whose draft there was kept (vLLM's per-position acceptance rate). Fewer than
            k where the engine does not tell all.
        num_steps: Steps with drafts.
        num_draft_tokens, num_accepted_tokens: Drafts, and those that were kept.
        requests_running: Requests that were decoded together, on average.
        derived: What was worked out because the format does not say it, in words.
        unknown: What the format does not say, in words.
    """

    engine: str
    format: str
    source: str
    accepted_per_step: float | None = None
    drafted_per_step: float | None = None
    other_drafted_per_step: float | None = None
    rates: tuple[float, ...] = ()
    num_steps: float | None = None
    num_draft_tokens: int | None = None
    num_accepted_tokens: int | None = None
    requests_running: float | None = None
    derived: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @classmethod
    def counted(cls, accepted: int, drafted: int | None, steps: float | None, **told: Any) -> "Reading":
        """An account that counts kept drafts, and where these are known drafts and steps; `told` are its other fields."""
        return cls(
            accepted_per_step=ratio(accepted, steps),
            drafted_per_step=ratio(drafted, steps),
            num_steps=steps,
            num_draft_tokens=drafted,
            num_accepted_tokens=accepted,
            **told,
        )

    def __post_init__(self) -> None:
        accepted, drafted = self.num_accepted_tokens, self.num_draft_tokens
        for count in (accepted, drafted):
            if count is not None and count > MOST_TOKENS:
                raise ValueError(f"{self.format}: {float(min(count, 10**300)):.3g} tokens cannot be")
        if drafted == 0:
            raise ValueError(f"{self.engine} says that nothing was drafted")
        if accepted is not None and drafted is not None and not 0 <= accepted <= drafted:
            raise ValueError(f"{self.format}: {accepted} accepted of {drafted} drafted cannot be")
        if self.accepted_per_step is not None and self.accepted_per_step < 0:
            raise ValueError(f"{self.format}: {self.accepted_per_step:g} accepted a step cannot be")
        before = 1.0
        for place, rate in enumerate(self.rates, start=1):
            if not 0 <= rate <= before + 2 * ROUNDING:
                raise ValueError(f"{self.format}: a rate of {rate:g} at place {place}, after {before:g}, cannot be")
            before = rate


def ratio(part: float | None, whole: float | None) -> float | None:
    """`part` ÷ `whole`, where both are known and there is a whole."""
    return None if part is None or not whole else part / whole


def rates_in(text: str) -> tuple[float, ...]:
    """Numbers with commas or spaces between them."""
    return tuple(float(rate) for rate in text.replace(",", " ").split())


def mean(numbers: Iterable[float]) -> float | None:
    """The mean; None of nothing."""
    numbers = list(numbers)
    return sum(numbers) / len(numbers) if numbers else None


def rates_of(histogram: Sequence[int], width: float | None) -> tuple[float, ...]:
    """By place, the share of the steps that kept as many, from how many steps kept 0, 1, 2 … drafts; it may end at the most
    that was ever kept."""
    steps = sum(histogram)
    tails = [sum(histogram[place:]) / steps for place in range(1, len(histogram))] if steps else []
    if width is not None and width == int(width):
        tails += [0.0] * (int(width) - len(tails))
    return tuple(tails)


def weighted_rates(parts: Iterable[tuple[float, tuple[float, ...]]]) -> tuple[float, ...]:
    """Rates of several accounts together, each with its steps; a place that one does not name was never kept there."""
    parts = list(parts)
    steps = sum(n for n, _ in parts)
    places = max((len(rates) for _, rates in parts), default=0)
    if not steps:
        return ()
    return tuple(sum(n / steps * rates[place] for n, rates in parts if place < len(rates)) for place in range(places))
