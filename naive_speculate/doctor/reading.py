"""The figures of an engine's speculative decoding, in one form for all engines, and what is derived from them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from naive_speculate.costs import CostTable
from naive_speculate.doctor.fading import Stretch

ROUNDING = 0.0006  # largest rounding error of a rate printed with three decimals

MOST_TOKENS = 10**15
CATEGORY = ("category", "task", "dataset")  # names under which benchmarks write a response's category


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
        judged: Per index, the share of all steps that judge a draft token there: all earlier ones were accepted, and the window
            has this one. Empty if unknown; then all windows are taken to be whole.
        num_steps: Steps with draft tokens.
        num_draft_tokens, num_accepted_tokens: Draft tokens, and accepted ones.
        requests_running: Mean number of requests decoded together.
        tokens_per_second: Speed with drafting.
        plain_tokens_per_second: Speed without drafting, of the same number of requests.
        draft_share: Share of the decoding time that the drafter takes.
        experts: What in the text shows that the target is a mixture of experts; empty if nothing does.
        course: Acceptance over the run, in the order of the text; empty if the format has only totals.
        categories: The figures of each category of requests, if the text names categories.
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
    judged: tuple[float, ...] = ()
    num_steps: float | None = None
    num_draft_tokens: int | None = None
    num_accepted_tokens: int | None = None
    requests_running: float | None = None
    tokens_per_second: float | None = None
    plain_tokens_per_second: float | None = None
    draft_share: float | None = None
    experts: str = ""
    course: tuple[Stretch, ...] = ()
    categories: Mapping[str, "Reading"] = field(default_factory=dict)
    derived: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

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


class Format(NamedTuple):
    """A format: its engine, its name, and the file of the engine that writes it, with its commit."""

    engine: str
    format: str
    source: str

    def reading(self, **figures: Any) -> Reading:
        """These figures, read from this format."""
        return Reading(self.engine, self.format, self.source, **figures)

    def counted(self, accepted: int, drafted: int | None, steps: float | None, **figures: Any) -> Reading:
        """Figures from counts of accepted draft tokens, draft tokens and steps, and others."""
        per_step: dict[str, Any] = {"accepted_per_step": ratio(accepted, steps), "drafted_per_step": ratio(drafted, steps)}
        counts: dict[str, Any] = {"num_steps": steps, "num_draft_tokens": drafted, "num_accepted_tokens": accepted}
        return self.reading(**per_step, **counts, **figures)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A possible fault, with its evidence and what to check.

    Attributes:
        name: Its identifier.
        words: Evidence and possible causes.
        next: What to measure next.
    """

    name: str
    words: str
    next: str


@dataclass(frozen=True, slots=True)
class Window:
    """The expected figures of a window.

    Attributes:
        k: Draft tokens per step.
        tokens: Tokens per step, the target's own included.
        measured: Whether the rates of all its indices are given; otherwise the last given rate, or α, is used for the rest.
        break_even_draft_cost: The draft cost below which it is faster than plain decoding; None if it never is.
        break_even_alpha: The α above which it is faster, for the given costs.
        speedup: Expected speedup with the given costs.
    """

    k: int
    tokens: float
    measured: bool
    break_even_draft_cost: float | None
    break_even_alpha: float | None = None
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of an engine's figures.

    Attributes:
        reading: The figures.
        alpha: Probability that a draft token is accepted if all earlier ones are: accepted ÷ (accepted + rejected). None if it
            cannot be derived.
        alpha_error: Its standard error; None if the steps are unknown.
        alpha_assumes_one: Whether α was derived from means, assuming the same α at every index.
        conditional: Per index, the share of windows with all earlier tokens accepted that accept this one too.
        unconditional: Per index, the share of all steps that accept the token.
        num_draft_tokens: The window: k, or its mean.
        mean_acceptance_length: Tokens per step, the target's own included.
        draft_acceptance_rate: Accepted ÷ drafted.
        costs: The given costs; None if there are none.
        windows: Expected figures of each window, from k = 1.
        best_k: The fastest window; 0 if drafting does not pay, None without costs.
        speedup: Expected speedup of the current window with these costs.
        measured_speedup: Speed with drafting ÷ speed without; None if either is unknown.
        suspects: Possible faults, the most likely first.
        categories: The diagnosis of each category of requests.
    """

    reading: Reading
    alpha: float | None
    alpha_error: float | None
    alpha_assumes_one: bool
    conditional: tuple[float | None, ...]
    unconditional: tuple[float, ...]
    num_draft_tokens: float | None
    mean_acceptance_length: float | None
    draft_acceptance_rate: float | None
    costs: CostTable | None
    windows: tuple[Window, ...]
    best_k: int | None
    speedup: float | None
    measured_speedup: float | None
    suspects: tuple[Suspect, ...] = ()
    categories: Mapping[str, "Diagnosis"] = field(default_factory=dict)

    @property
    def gain(self) -> float | None:
        """Speed of the best window relative to the current one."""
        best = None if self.best_k is None else self.windows[self.best_k - 1].speedup if self.best_k else 1.0
        return ratio(best, self.speedup)

    @property
    def draft_share(self) -> float | None:
        """The drafter's share of a step's time, as measured or by the costs; None if unknown."""
        share, width, tokens = self.reading.draft_share, self.num_draft_tokens, self.mean_acceptance_length
        if share or self.costs is None or width is None or tokens is None or self.speedup is None:
            return share
        return width * self.costs.draft * self.speedup / tokens

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain JSON values, without the course of the run."""
        plain = to_jsonable_python(self, exclude={"reading": {"course", "categories"}, "categories": True})
        return plain | {"costs": self.costs and self.costs.to_dict()}

    def profile(self) -> dict[str, Any]:
        """Acceptance rates by index, of the whole text and of each category, as plain JSON values."""
        names = ("engine", "format", "num_steps", "num_draft_tokens", "num_accepted_tokens")
        return {name: getattr(self.reading, name) for name in names} | {
            "mean_acceptance_length": self.mean_acceptance_length,
            "alpha": self.alpha,
            "rates": [
                {"index": index, "conditional": conditional, "marginal": marginal}
                for index, (conditional, marginal) in enumerate(zip(self.conditional, self.unconditional, strict=True))
            ],
            "categories": {name: found.profile() for name, found in self.categories.items()},
        }


def by_category(found: Sequence[tuple[Any, dict[str, Any]]], build: Callable[[list[Any]], Reading]) -> dict[str, Reading]:
    """The figures of each category of these reports; empty if one report names none. `found`: reports, each with the outermost
    object that contains it; `build`: makes figures from several reports."""
    names = [next((name for key in CATEGORY if isinstance(name := outer.get(key), str)), None) for _, outer in found]
    if None in names:
        return {}
    groups = {str(name): [one for (one, _), other in zip(found, names, strict=True) if other == name] for name in names}
    return {name: build(group) for name, group in groups.items()}


def all_whole(rates: Sequence[float], width: float | None) -> bool:
    """Whether every window had a draft token at each of these indices, so that rates of steps are rates of windows."""
    return width is not None and abs(len(rates) - width) < 0.01


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
