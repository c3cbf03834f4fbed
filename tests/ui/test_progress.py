"""A run's figures at each of its events: those that its metrics have, each event counted once."""

import json

from naive_speculate.events import Event
from naive_speculate.metrics import Metrics
from naive_speculate.trace import Trace
from tests.ui.handmade import run
from ui.progress import Figures, Progress
from ui.runs import Run, Runs
from ui.stage import _server_functions

FIELDS = (
    "num_generated_tokens",
    "num_spec_steps",
    "num_draft_tokens",
    "num_accepted_draft_tokens",
    "draft_acceptance_rate",
    "mean_acceptance_length",
    "tokens_per_second",
)


def test_at_every_event_the_figures_are_the_metrics():
    events = run([(3, 1), (0, 0), (4, 4), (2, 0)]).events
    progress = Progress(events)
    for upto in [*range(len(events) + 1), 5, 0, len(events) - 1]:
        metrics, figures = Trace(events[:upto]).metrics, progress.at(upto)
        assert [getattr(figures, name) for name in FIELDS] == [getattr(metrics, name) for name in FIELDS]
    assert progress.at(-3) == progress.at(0)
    assert progress.at(10**9) == progress.at(len(events))


def test_a_run_that_goes_on_is_followed():
    events = run([(3, 1), (2, 2)]).events
    seen: list[Event] = events[:4]
    progress = Progress(seen)
    assert progress.at(99) == Progress(events).at(4)
    seen.extend(events[4:])
    assert progress.at(99) == Progress(events).at(len(events))


def test_each_event_is_counted_once_however_the_reader_moves(monkeypatch):
    counted: list[Event] = []
    after = Figures.after

    def watched(figures: Figures, event: Event) -> Figures:
        counted.append(event)
        return after(figures, event)

    def summarized(_: object) -> Metrics:
        raise AssertionError("a place in the run was summarized anew")

    monkeypatch.setattr(Figures, "after", watched)
    monkeypatch.setattr("naive_speculate.trace.summarize", summarized)
    runs, mine = Runs(), Run(run([(3, 1), (3, 3)]).events)
    runs.add("visitor", mine)
    *_, seek = _server_functions(runs)
    for upto in (3, len(mine.events), 7, 1, len(mine.events)):
        assert "stats" in json.loads(seek([mine.id, upto, False]))
    assert [id(event) for event in counted] == [id(event) for event in mine.events]
