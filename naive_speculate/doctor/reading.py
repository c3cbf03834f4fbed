"""The figures of an engine's speculative decoding, in one form for all engines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


class Part(NamedTuple):
    """One report: a line, a response or a run. Its fields are as in `Reading`, with the rates of its own steps."""

    accepted: int
    drafted: int | None
    steps: float | None
    rates: tuple[float, ...] = ()
    judged: tuple[float, ...] = ()
    course: tuple[Stretch, ...] = ()
    category: str | None = None


class Format(NamedTuple):
    """A format: its engine, its name, and the file of the engine that writes it, with its commit."""

    engine: str
    format: str
    source: str

    def reading(self, **figures: Any) -> Reading:
        """These figures, read from this format."""
        return Reading(self.engine, self.format, self.source, **figures)

    def total(self, parts: Sequence[Part], **figures: Any) -> Reading:
        """All reports together, and those of each category if every report names one; `figures` add to theirs.

        A count is unknown if one report lacks it. Rates are means over the steps, and unknown if a report with steps has none.
        """
        columns = zip(*(part[:3] for part in parts), strict=True)
        accepted, drafted, steps = (None if None in column else sum(column) for column in columns)
        stepped = [part for part in parts if part.steps]
        rates, judged = (
            _mean_rates([(part.steps or 0.0, getattr(part, name)) for part in stepped]) if steps else ()
            for name in ("rates", "judged")
        )
        names = {part.category for part in parts}
        found: dict[str, Any] = {
            "accepted_per_step": ratio(accepted, steps),
            "drafted_per_step": ratio(drafted, steps),
            "num_steps": steps or None,
            "num_draft_tokens": drafted,
            "num_accepted_tokens": accepted,
            "rates": rates,
            "judged": judged,
            "course": tuple(stretch for part in parts for stretch in part.course),
            "categories": {}
            if None in names
            else {
                str(name): self.total([part._replace(category=None) for part in parts if part.category == name])
                for name in names
            },
        }
        return self.reading(**found | figures)


def _mean_rates(parts: Sequence[tuple[float, tuple[float, ...]]]) -> tuple[float, ...]:
    """The mean of lists of rates, weighted by steps; empty if one list is, and a shorter list counts 0 for the rest."""
    if not all(rates for _, rates in parts):
        return ()
    steps, width = sum(n for n, _ in parts), max((len(rates) for _, rates in parts), default=0)
    return tuple(sum(n / steps * rates[index] for n, rates in parts if index < len(rates)) for index in range(width))


def category(outermost: Mapping[str, Any]) -> str | None:
    """The category that the outermost object around a report names."""
    return next((name for key in CATEGORY if isinstance(name := outermost.get(key), str)), None)


def ratio(part: float | None, whole: float | None) -> float | None:
    """`part` ÷ `whole`; None if either is unknown or `whole` is 0."""
    return None if part is None or not whole else part / whole


def numbers_in(text: str) -> tuple[float, ...]:
    """Numbers separated by commas or spaces."""
    return tuple(float(number) for number in text.replace(",", " ").split())


def mean(numbers: Iterable[float]) -> float | None:
    """The mean; None without numbers."""
    numbers = list(numbers)
    return sum(numbers) / len(numbers) if numbers else None


def rates_of(histogram: Sequence[int], width: float | None) -> tuple[float, ...]:
    """Rates per index from the numbers of steps that accepted 0, 1, 2 … draft tokens; the histogram may end early."""
    steps = sum(histogram)
    tails = [sum(histogram[count:]) / steps for count in range(1, max(len(histogram), 2))] if steps else []
    if width is not None and width == int(width):
        tails += [0.0] * (int(width) - len(tails))
    return tuple(tails)
