"""A lesson: text, an experiment on the real models, and a view of the result for each step.

The experiment's result is plain data, either recorded or from a live run. The same functions
make text and views of both.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Any, NamedTuple

from naive_speculate.events.metrics import summarize
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.sequence import Detail
from naive_speculate.tools.ratio import Estimate, logs_of, ratio_of
from naive_speculate.tools.show.speedup import step_seconds
from ui.charts.figures import Figure, above, bars, category_axis, figure
from ui.host.catalog import Catalog
from ui.labels import visible
from ui.run.settings import Settings

Data = dict[str, Any]  # an experiment's result, in JSON types
View = dict[str, Any]
"""What a step shows: a chart `{"figure": …}`, or parts of the lesson's markup `{"shown": […],
"lit": […]}`. A chart that hides an answer also has the `finished` chart, for visitors who
measured it. In a `calculated` one nothing is measured."""
DIM = 0.4
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Trial:
    """One run of an experiment with the visitor's prompt and pair; all other settings are the
    lesson's or the defaults. `earlier` contains the keys of results that this visitor has seen."""

    catalog: Catalog
    settings: Settings
    earlier: frozenset[str] = frozenset()

    @property
    def drafter(self) -> str:
        """See `ServedPair.drawing`."""
        return self.catalog.of(self.settings.pair).drawing

    def run(self, detail: Detail = "none", **changes: Any) -> Trace:
        """Decode with the visitor's prompt and pair and the lesson's settings; a ValueError
        names the invalid setting."""
        chosen = replace(self.settings, **changes)
        return Trace(self.catalog.stream(chosen.pair, chosen.request(detail)))

    def sampled(self, tries: int = 1, **changes: Any) -> Iterator[Trace]:
        """Runs with successive seeds, speculative sampling and full details, at temperature 1
        unless that is changed."""
        first = self.settings.seed or 0
        for seed in range(first, first + tries):
            yield self.run(
                "full", seed=seed, drafter=self.drafter, **{"temperature": 1.0, **changes}
            )


class Progress(NamedTuple):
    """An experiment's status and its result so far; None if there is none yet."""

    status: str
    data: Data | None = None


@dataclass(frozen=True)
class Lesson:
    number: int  # its number, from 1; its texts are in `assets/lessons/{number}.md`
    # the experiment; the last item it yields is the result
    measure: Callable[[Trial], Iterator[Progress]]
    words: Callable[[Data], Mapping[str, str]]  # the values of the placeholders in the text
    # the right choice of each question, from 0, given the result
    right: Callable[[Data], Sequence[int]]
    # the opening's view, which hides the answer to the lesson's question, then one per step but the
    # exercises
    views: Callable[[Data], list[View]]
    # a picture in HTML whose `data-part` elements the other views show and highlight; None if all
    # are charts
    markup: Callable[[Data], str] | None = None
    # whether it measures times, so that only one such experiment may run at once
    timed: bool = False
    # the values of the placeholders in its labels
    numbers: Mapping[str, Any] = field(default_factory=dict)


def parts(*shown: str, lit: Sequence[str] = ()) -> View:
    """A view of some parts of the lesson's markup, some of them highlighted."""
    return {"shown": shown, "lit": lit}


def spoken(text: str) -> str:
    """A token in a sentence: without its space, unless it is nothing but spaces."""
    return visible(text.strip(" ") or text)


def asking(figure: Figure, places: Iterable[float], takeaway: str) -> Figure:
    """A chart with a question mark at the hidden positions, on the zero of its axis, and with
    this takeaway."""
    mark = {"text": "?", "y": 0, "yanchor": "bottom", "font": {"size": 22}}
    marks = [{**mark, "x": place} for place in places]
    return {**figure, "layout": {**figure["layout"], "annotations": marks, "meta": takeaway}}


def bar_chart(
    said: str,
    names: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    colors: Any,
    y: Data,
    *lines: Data,
    title: str = "",
    **look: Any,
) -> Figure:
    """Bars with these names below and these texts at their ends; a question mark in place of
    each bar without a value yet. `y` is the axis, `lines` are more traces, `title` is that of
    the names, `look` is of the bars."""
    shown = range(len(values))
    bar = bars(
        "",
        shown,
        values,
        colors,
        "%{text}",
        **(above(texts[: len(values)]) | look),
        showlegend=False,
    )
    x = category_axis(names, title)
    return asking(
        figure([bar, *lines], takeaway=said, x=x, y=y, height=320),
        range(len(values), len(names)),
        said,
    )


def showing(
    figure: Figure, *names: str, lit: Sequence[str] = (), takeaway: str | None = None
) -> View:
    """A view of a chart with the traces of these names (all if empty), of which the `lit` are
    highlighted (all if empty), and with its own takeaway or another. The chart's axes need fixed
    ranges, so that nothing moves between steps."""
    shown = [trace for trace in figure["data"] if not names or trace.get("name") in names]
    traces = [
        {**trace, "opacity": DIM} if lit and trace.get("name") not in lit else trace
        for trace in shown
    ]
    layout = {**figure["layout"], "showlegend": True}
    if takeaway is not None:
        layout["meta"] = takeaway
    return {"figure": {"data": traces, "layout": layout}}


def totals(traces: Sequence[Trace]) -> dict[str, Any]:
    """The numbers for a picture, in JSON types; empty before the first step.

    `rounds` are the steps, which is the target passes; `drafted`, `kept` and `judged` the draft
    tokens that were proposed, accepted, and judged; `kept_at` for each position in the window
    the number of steps that accepted it. `speed` is in tokens per second of undisturbed steps,
    `speeds` the same of each run that had a timed step. A run's first step, which includes the
    warm-up, has no time.
    """
    m = summarize(chain(*traces))
    pace = m.mean_acceptance_length
    if pace is None:
        return {}
    timed = [[event for event in trace if event.step] for trace in traces]
    seconds, mean_seconds = [step_seconds(run) for run in timed], step_seconds(chain(*timed))
    paces = [trace.metrics.mean_acceptance_length or 0.0 for trace in traces]
    return {
        "rounds": m.num_spec_steps,
        "drafted": m.num_draft_tokens,
        "kept": m.num_accepted_draft_tokens,
        "judged": m.num_judged,
        "kept_at": list(accumulate(m.acceptance_histogram[:0:-1]))[::-1],
        "speeds": [own / each for own, each in zip(paces, seconds, strict=True) if each],
        "tokens_a_pass": pace,
        "kept_share": m.draft_acceptance_rate,
        "speed": pace / mean_seconds if mean_seconds else None,
    }


def run_all(
    trial: Trial,
    cases: Mapping[str, Mapping[str, Any]],
    status: Callable[[str], str],
    least: int | None = None,
    **common: Any,
) -> Iterator[Progress]:
    """Run every case with several seeds, alternating, so that a disturbance affects all cases.
    The first is plain decoding.

    The result is `{"known": totals by case}`, as soon as plain decoding and `least` cases (all
    by default) were timed. `status` says of a case that it is running.
    """
    traces: dict[str, list[Trace]] = {name: [] for name in cases}
    data: Data | None = None
    for seed in SEEDS:
        for name, changes in cases.items():
            yield Progress(status(name), data)
            traces[name].append(trial.run(**{**common, **changes}, seed=seed))
            known = {
                case: sums for case, runs in traces.items() if (sums := totals(runs)).get("speed")
            }
            if next(iter(cases)) in known and len(known) >= (least or len(cases)):
                data = {"known": known}
    yield Progress("Done.", data)


def log_speedups(data: Data, name: str, plain: str) -> list[float]:
    """Logarithms of a case's speedup for each seed; of all runs together where one of them was
    too short to be timed."""
    cases = data["known"][name], data["known"][plain]
    speeds = [case["speeds"] for case in cases]
    if len(speeds[0]) != len(speeds[1]):
        speeds = [[case["speed"]] for case in cases]
    return logs_of(*speeds)


def speedup(data: Data, name: str, plain: str) -> Estimate:
    """A case's speedup; its interval is wide, since there are so few seeds."""
    return ratio_of(log_speedups(data, name, plain), least=len(SEEDS))
