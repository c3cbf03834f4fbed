"""The figures of an engine's speculative decoding, in one form for all engines."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

ROUNDING = 0.0006
"""Largest rounding error of a rate printed with three decimals."""

MOST_TOKENS = 10**15


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of an engine's speculative decoding; unknown ones are None.

    Attributes:
        engine: Its name.
        format: The format that was read.
        source: The file of the engine that writes the format, and its commit.
        accepted_per_step: Accepted draft tokens per step.
        drafted_per_step: Draft tokens per step: k, or its mean.
        other_drafted_per_step: The same under the format's other meaning, if the text does not decide between them.
        rates: Per index, the share of all steps that accept the draft token (vLLM's per-position acceptance rate). Fewer than
            k if the engine does not report all.
        num_steps: Steps with draft tokens.
        num_draft_tokens, num_accepted_tokens: Draft tokens, and accepted ones.
        requests_running: Mean number of requests decoded together.
        derived: Sentences on figures that were derived.
        unknown: Sentences on figures that the format lacks.
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
    def counted(cls, accepted: int, drafted: int | None, steps: float | None, **fields: Any) -> "Reading":
        """Figures from counts of accepted draft tokens, draft tokens and steps; `fields` are the others."""
        return cls(
            accepted_per_step=ratio(accepted, steps),
            drafted_per_step=ratio(drafted, steps),
            num_steps=steps,
            num_draft_tokens=drafted,
            num_accepted_tokens=accepted,
            **fields,
        )

    def __post_init__(self) -> None:
        accepted, drafted = self.num_accepted_tokens, self.num_draft_tokens
        for count in (accepted, drafted):
            if count is not None and count > MOST_TOKENS:
                raise ValueError(f"{self.format}: {float(min(count, 10**300)):.3g} tokens are impossible")
        if drafted == 0:
            raise ValueError(f"{self.engine} reports that nothing was drafted")
        if accepted is not None and drafted is not None and not 0 <= accepted <= drafted:
            raise ValueError(f"{self.format}: {accepted} accepted of {drafted} drafted is impossible")
        if self.accepted_per_step is not None and self.accepted_per_step < 0:
            raise ValueError(f"{self.format}: {self.accepted_per_step:g} accepted per step is impossible")
        before = 1.0
        for index, rate in enumerate(self.rates):
            if not 0 <= rate <= before + 2 * ROUNDING:
                raise ValueError(f"{self.format}: a rate of {rate:g} at index {index}, after {before:g}, is impossible")
            before = rate


def ratio(part: float | None, whole: float | None) -> float | None:
    """`part` ÷ `whole`; None if either is unknown or `whole` is 0."""
    return None if part is None or not whole else part / whole


def rates_in(text: str) -> tuple[float, ...]:
    """Numbers separated by commas or spaces."""
    return tuple(float(rate) for rate in text.replace(",", " ").split())


def mean(numbers: Iterable[float]) -> float | None:
    """The mean; None without numbers."""
    numbers = list(numbers)
    return sum(numbers) / len(numbers) if numbers else None


def rates_of(histogram: Sequence[int], width: float | None) -> tuple[float, ...]:
    """Rates per index from the numbers of steps that accepted 0, 1, 2 … draft tokens; the histogram may end early."""
    steps = sum(histogram)
    tails = [sum(histogram[count:]) / steps for count in range(1, len(histogram))] if steps else []
    if width is not None and width == int(width):
        tails += [0.0] * (int(width) - len(tails))
    return tuple(tails)


def weighted_rates(parts: Iterable[tuple[float, tuple[float, ...]]]) -> tuple[float, ...]:
    """The mean of several lists of rates, weighted by steps; missing rates are 0."""
    parts = list(parts)
    steps = sum(n for n, _ in parts)
    width = max((len(rates) for _, rates in parts), default=0)
    if not steps:
        return ()
    return tuple(sum(n / steps * rates[index] for n, rates in parts if index < len(rates)) for index in range(width))
