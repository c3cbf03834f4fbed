"""The figures of an engine's speculative decoding, in one form for all engines."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

GIVEN = "The window is from the server's arguments."
NO_HISTOGRAM = "There is no histogram, so the rates per index are unknown."
_STEPS = (
    "The steps are derived from the tokens that were not draft tokens. Steps without a draft token"
    " are counted too, which makes windows look shorter."
)
ROUNDING = 0.0006  # largest rounding error of a rate printed with three decimals
MOST_TOKENS = 10**15
SPEEDS = ("tokens_per_second", "plain_tokens_per_second")


@dataclass(frozen=True, slots=True)
class Stretch:
    """One step, or the steps of one report."""

    position: float | None  # tokens before it, the prompt's included; None if unknown
    steps: float  # steps with draft tokens
    hits: float  # those that accepted at least one


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of an engine's speculative decoding; unknown ones are None. Raises `ValueError` if
    they are impossible."""

    engine: str
    format: str
    source: str  # the file of the engine that writes the format, and its commit
    accepted_per_step: float | None = None  # draft tokens
    drafted_per_step: float | None = None  # k, or its mean
    # by the format's other meaning, if the text does not decide between them
    other_drafted_per_step: float | None = None
    acceptance: float | None = None  # accepted ÷ drafted, where the format has no counts
    # Per index, the share of all steps that accept the draft token (vLLM's per-position acceptance
    # rate). Fewer than k if the engine does not report all.
    rates: tuple[float, ...] = ()
    # Per index, the share of all steps that judge a draft token there: all earlier ones were
    # accepted, and the window has this one. Empty if unknown; then all windows are taken to be
    # whole.
    judged: tuple[float, ...] = ()
    num_steps: float | None = None  # with draft tokens
    drafted_share: float | None = None  # of all steps, the share with draft tokens
    num_draft_tokens: int | None = None
    num_accepted_tokens: int | None = None
    requests_running: float | None = None  # mean number of requests decoded together
    tokens_per_second: float | None = None  # with drafting
    plain_tokens_per_second: float | None = None  # without drafting, of the same number of requests
    draft_share: float | None = None  # share of the decoding time that the drafter takes
    # what in the text shows that the target is a mixture of experts; empty if nothing does
    experts: str = ""
    num_after_end: int = 0  # responses that count draft tokens accepted after their end
    # acceptance over the run, in the order of the text; empty if there are only totals
    course: tuple[Stretch, ...] = ()
    # of requests, if the text names categories
    categories: Mapping[str, "Reading"] = field(default_factory=dict)
    # by name, if the text is of several
    processes: Mapping[str, "Reading"] = field(default_factory=dict)
    derived: tuple[str, ...] = ()  # sentences on figures that were derived
    unknown: tuple[str, ...] = ()  # sentences on figures that the format lacks

    def __post_init__(self) -> None:
        if self.num_draft_tokens == 0:
            raise ValueError(f"{self.engine} reports that nothing was drafted")
        for words in self._impossible():
            raise ValueError(f"{self.format}: {words} impossible")

    def _impossible(self) -> Iterator[str]:
        accepted, drafted = self.num_accepted_tokens, self.num_draft_tokens
        for count in (accepted, drafted):
            if count is not None and count > MOST_TOKENS:
                yield f"{float(min(count, 10**300)):.3g} tokens are"
        if accepted is not None and drafted is not None and not 0 <= accepted <= drafted:
            yield f"{accepted} accepted of {drafted} drafted is"
        if self.acceptance is not None and not 0 <= self.acceptance <= 1:
            yield f"a rate of {self.acceptance:g} is"
        if self.accepted_per_step is not None and self.accepted_per_step < 0:
            yield f"{self.accepted_per_step:g} accepted per step is"
        for index, (before, rate) in enumerate(zip((1.0, *self.rates), self.rates, strict=False)):
            if not 0 <= rate <= before + 2 * ROUNDING:
                yield f"a rate of {rate:g} at index {index}, after {before:g}, is"


class Part(NamedTuple):
    """One report: a line, a response or a run; fields as in `Reading`."""

    accepted: int
    drafted: int | None
    steps: float | None
    rates: tuple[float, ...] = ()
    judged: tuple[float, ...] = ()
    course: tuple[Stretch, ...] = ()
    category: str | None = None


class Format(NamedTuple):
    """Its engine, name, and the engine's file that writes it, with a commit."""

    engine: str
    format: str
    source: str

    def total(self, parts: Sequence[Part], **figures: Any) -> Reading:
        """All reports together, and by category if every report names one; `figures` add to theirs.
        A count is unknown if one report lacks it. Rates are means over the steps, and unknown if a
        report with steps has none."""
        columns = zip(*(part[:3] for part in parts), strict=True)
        accepted, drafted, steps = (None if None in column else sum(column) for column in columns)
        by_category: dict[str | None, list[Part]] = defaultdict(list)
        for part in parts:
            by_category[part.category].append(part._replace(category=None))
        fields: dict[str, Any] = {
            "accepted_per_step": ratio(accepted, steps),
            "drafted_per_step": ratio(drafted, steps),
            "num_steps": steps or None,
            "num_draft_tokens": drafted,
            "num_accepted_tokens": accepted,
            "rates": mean_rates([(part.steps, part.rates) for part in parts]) if steps else (),
            "judged": mean_rates([(part.steps, part.judged) for part in parts]) if steps else (),
            "course": tuple(stretch for part in parts for stretch in part.course),
            "categories": (
                {} if None in by_category else {k: self.total(v) for k, v in by_category.items()}
            ),
        } | figures
        for name in ("derived", "unknown"):
            fields[name] = tuple(filter(None, fields.get(name, ())))
        return Reading(*self, **fields)

    def of_tokens(self, parts: Sequence[Part], *unknown: str | int, **figures: Any) -> Reading:
        """As `total`, of reports with derived steps: each gives the accepted draft tokens and one
        of the target."""
        steps = [part.steps for part in parts]
        known = None not in steps and any(steps)
        if not known:
            parts = [part._replace(steps=None) for part in parts]
        lacking = not known and "The number of steps cannot be derived."
        notes = {"derived": (known and _STEPS,), "unknown": (*unknown, lacking)}
        return self.total(parts, **notes | figures)

    def of_means(
        self, runs: Sequence[tuple[float, float | None, tuple[float, ...]]], **figures: Any
    ) -> Reading:
        """Runs without counts, with equal weights: accepted draft tokens per step, the percentage
        accepted, and rates."""
        widths = [ratio(100 * accepted, percentage) for accepted, percentage, _ in runs if accepted]
        width = None if None in widths else mean(width for width in widths if width is not None)
        rates = mean_rates([(1, rates) for *_, rates in runs])
        if width is not None and rates and abs(width - len(rates)) < 0.05 * len(rates):
            width = float(len(rates))  # the printed figures have two decimals
        return Reading(
            *self,
            accepted_per_step=mean(accepted for accepted, *_ in runs),
            drafted_per_step=width,
            rates=rates,
            unknown=("The text does not count the steps, so several runs have the same weight.",),
            **figures,
        )


def steps_of(tokens: int, accepted: int) -> int | None:
    """The steps of a response with drafts: each gives one token of the target, and so does the
    prompt. None if too few tokens are left, as after its end some drafts were accepted; if none is
    left, the limit cut off the only step's own token."""
    steps = tokens - 1 - accepted
    return None if steps < 0 else max(steps, 1)


def last_of_each(reports: Iterable[tuple[str, ...]], counters: slice) -> list[tuple[str, ...]]:
    """The last report of each set of growing counters: of processes that share a log, or of one
    that was restarted. A report continues the nearest earlier one of which no counter is larger."""
    last: list[tuple[list[int], tuple[str, ...]]] = []
    for report in reports:
        counts = list(map(int, report[counters]))
        before = [
            one for one in last if all(old <= new for old, new in zip(one[0], counts, strict=True))
        ]
        if before:
            last.remove(max(before, key=lambda one: sum(one[0])))
        last.append((counts, report))
    return [report for _, report in last]


def mean_rates(parts: Sequence[tuple[float | None, tuple[float, ...]]]) -> tuple[float, ...]:
    """Weighted by steps; empty if one list is. A shorter list counts 0 for the rest."""
    weighted = [(steps, rates) for steps, rates in parts if steps]
    if not all(rates for _, rates in weighted):
        return ()
    total = sum(steps for steps, _ in weighted)
    width = max((len(rates) for _, rates in weighted), default=0)
    return tuple(
        sum(n / total * rates[index] for n, rates in weighted if index < len(rates))
        for index in range(width)
    )


def category(outermost: Mapping[str, Any]) -> str | None:
    """As benchmarks name it in the outermost object around a report."""
    metadata = outermost.get("metadata")  # AIPerf's
    named = {**(metadata if isinstance(metadata, dict) else {}), **outermost}
    keys = ("category", "task", "dataset", "source_kind")
    return next((name for key in keys if isinstance(name := named.get(key), str)), None)


def ratio(part: float | None, whole: float | None) -> float | None:
    """`part` ÷ `whole`; None if either is unknown or `whole` is 0."""
    return None if part is None or not whole else part / whole


def numbers_in(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.replace(",", " ").split())


def mean(numbers: Iterable[float]) -> float | None:
    numbers = list(numbers)
    return sum(numbers) / len(numbers) if numbers else None


def per_second(runs: Sequence[tuple[bool, float, int]]) -> dict[str, float]:
    """Tokens per second with and without drafting, from each run's kind, milliseconds and
    tokens."""
    named = {}
    for drafted, name in zip((True, False), SPEEDS, strict=True):
        alike = [run for run in runs if run[0] == drafted]
        spent, tokens = sum(run[1] for run in alike), sum(run[2] for run in alike)
        if spent > 0 and tokens > len(alike):
            named[name] = 1000 * tokens / spent
    return named


def histogram_of(accepted: Sequence[int]) -> list[int]:
    counts = Counter(accepted)
    return [counts[number] for number in range(max(accepted) + 1)]


def rates_of(histogram: Sequence[int], width: float | None) -> tuple[float, ...]:
    """Rates per index from the numbers of steps that accepted 0, 1, 2 … draft tokens."""
    steps = sum(histogram)
    counts = range(1, max(len(histogram), 2) if steps else 1)
    tails = [sum(histogram[count:]) / steps for count in counts]
    if width is not None and width == int(width):
        tails += [0.0] * (int(width) - len(tails))
    return tuple(tails)


def judged_of(windows: Sequence[tuple[int, int, int]], width: int) -> tuple[float, ...]:
    """The shares of steps that judge each index, from windows: draft tokens, accepted ones, and how
    many are alike."""
    steps = sum(count for *_, count in windows)
    return tuple(
        sum(count for drafted, hits, count in windows if hits >= index < drafted) / steps
        for index in range(width)
    )
