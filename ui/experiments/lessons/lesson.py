"""What a lesson is made of: words, an experiment on the real models, and for every step a view of what it found.

The experiment's result is plain data. A recording is such a result, saved; a live run is a fresh one. Both become words and
views through the same functions, so that a lesson looks the same with a visitor's prompt as it does when it is opened.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from naive_speculate.events import Event
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.sequence import Detail
from ui.charts.figures import Figure
from ui.host.catalog import Catalog
from ui.labels import visible
from ui.run.settings import Settings

Data = dict[str, Any]
"""What an experiment found, as JSON has it."""
View = dict[str, Any]
"""What a step shows: `{"figure": …}` of a chart, or `{"shown": […], "lit": […]}` of the parts of a lesson's markup. One whose
chart leaves open what the lesson asks has that chart `finished`, too, for who has measured it."""
DIM = 0.4
CONTEXT = 70


@dataclass(frozen=True)
class Trial:
    """One go at an experiment, with the visitor's prompt and pair, until it is cancelled; everything else is the lesson's own.

    `seen` are keys of the results that this visitor has had before.
    """

    catalog: Catalog
    settings: Settings
    cancel: threading.Event = field(default_factory=threading.Event)
    seen: frozenset[str] = frozenset()

    def seeds(self, most: int) -> range:
        """Seeds of so many different runs, beginning with the settings' own."""
        first = self.settings.seed or 0
        return range(first, first + most)

    def stream(self, detail: Detail = "none", **changes: Any) -> Iterator[Event]:
        """Decode with the visitor's prompt and pair, under the lesson's own settings.

        Raises:
            ValueError: Names the setting that cannot be.
        """
        chosen = replace(self.settings, **changes)
        return self.catalog.stream(chosen.pair, chosen.request(detail), self.cancel)

    def run(self, detail: Detail = "none", **changes: Any) -> Trace:
        """The same, to its end."""
        return Trace(self.stream(detail, **changes))

    def sampled(self, seed: int, **changes: Any) -> Trace:
        """A run whose every draft is judged by p/q, with all that is known of each."""
        judged = {"auto": False, "drafter": "model", "verify_strategy": "speculative_sampling", "temperature": 1.0}
        return self.run("full", seed=seed, **judged, **changes)


class Progress(NamedTuple):
    """What an experiment says, and what it has found so far; None for nothing yet."""

    said: str
    data: Data | None = None


@dataclass(frozen=True)
class Lesson:
    """One lesson.

    Attributes:
        number: Its place, from 1; its words are `assets/lessons/{number}.md`.
        button: What makes it live is called.
        note: What that does, in a line.
        measure: The experiment; the last that it yields is the result.
        words: What the placeholders in the text stand for.
        right: The right choice of every question, from 0, by the result.
        views: What is shown: first on opening, then one view a step. A chart opens without what the lesson asks for.
        chart: What the chart is called, where the views are charts.
        markup: A picture in HTML, whose elements with `data-part` the views show and light; None where the views are charts.
        timed: Whether it measures times, so that no two of its kind may run at once.
    """

    number: int
    button: str
    note: str
    measure: Callable[[Trial], Iterator[Progress]]
    words: Callable[[Data], Mapping[str, str]]
    right: Callable[[Data], Sequence[int]]
    views: Callable[[Data], list[View]]
    chart: str = ""
    markup: Callable[[Data], str] | None = None
    timed: bool = False


def end_of(text: str, characters: int = CONTEXT) -> str:
    """The last words of a text, whole ones; after an ellipsis where something came before."""
    if len(text) <= characters:
        return text
    return "… " + text[-characters:].partition(" ")[2]


def spoken(text: str) -> str:
    """A token as a sentence has it: without the space that belongs to it, unless there is nothing else."""
    return visible(text.strip(" ") or text)


def only_first(bars: dict[str, Any], places: int) -> dict[str, Any]:
    """The first of so many bars."""
    hidden = [None] * (places - 1)
    return {**bars, "y": [bars["y"][0], *hidden], "text": [bars["text"][0], *hidden]}


def asking(figure: Figure, places: Iterable[int], takeaway: str) -> Figure:
    """A chart with a question mark at the places that the reader is to think about, and a line that asks."""
    mark = {"text": "?", "yref": "paper", "y": 0, "yanchor": "bottom", "font": {"size": 22}}
    marks = [{**mark, "x": place} for place in places]
    return {**figure, "layout": {**figure["layout"], "annotations": marks, "meta": takeaway}}


def showing(figure: Figure, *names: str, lit: Sequence[str] = (), takeaway: str | None = None) -> View:
    """A view of a chart with only some of its traces, of which only some stand out.

    Args:
        figure: The whole chart; its axes must have ranges of their own, for nothing should move from step to step.
        *names: Names of the traces that are seen; all of them without.
        lit: Those that stand out; all that are seen without.
        takeaway: What the chart says at this step; its own where that gives nothing away.
    """
    traces = []
    for trace in figure["data"]:
        name = trace.get("name", "")
        if names and name not in names:
            continue
        traces.append({**trace, "opacity": DIM} if lit and name not in lit else trace)
    layout = {**figure["layout"], "showlegend": True}
    if takeaway is not None:
        layout["meta"] = takeaway
    return {"figure": {"data": traces, "layout": layout}}
