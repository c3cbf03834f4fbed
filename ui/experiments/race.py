"""The race: one prompt and seed, decoded in two ways, then replayed side by side at recorded speed or slower.

Both runs are real. They are made one after the other, because at the same time they would share the processor. The browser
replays them from the times of their events. The tab opens with a recorded race of the bundled pair.
"""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from naive_speculate.events import OUTPUT_KINDS, EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.sampling.random_source import fresh_seed
from naive_speculate.text import num_shared
from ui.assets import component, render
from ui.experiments.race_verdict import DRAFTER_WORDS, lane_title, verdict
from ui.experiments.recordings import recorded_race
from ui.host.catalog import Catalog
from ui.labels import count, to_json
from ui.notify import QUIET
from ui.run import controls as parts
from ui.run.messages import HEAVY
from ui.run.settings import Settings

INTRO = (
    "The same target decodes the Run tab's prompt in two ways: plainly and with drafts, or with two drafters. Each way runs "
    "twice, in turn (a slow one once), and the faster run is replayed in slow motion."
)
PLAIN, AS_SET = "none", "run"
WARM_UP_TOKENS = 4
REPORT_EVERY = 16
HEATS = 2
LONG_SECONDS = 5.0
"""A longer run is not repeated: a short disturbance matters little in it."""
SHOWN = OUTPUT_KINDS | {EventKind.STARTED, EventKind.REJECTED, EventKind.STEP}

_serials = itertools.count(1)


def choices(catalog: Catalog) -> list[tuple[str, str]]:
    """The choices for a lane, with their values: the drafters that any pair can use."""
    offered = [(title, name) for name, (title, _) in DRAFTER_WORDS.items() if name in catalog.drafters]
    return [("No drafts", PLAIN), ("As on Run", AS_SET), *offered]


def lane(trace: Trace) -> dict[str, Any]:
    """The data to replay a run: the events of its output, of rejected draft tokens, and of steps."""
    title, note = lane_title(trace)
    events = [event.to_dict(without=HEAVY) for event in trace if event.kind in SHOWN]
    return {"title": title, "note": note, "drafts": trace.metrics.num_draft_tokens > 0, "events": events}


def message(serial: int, left: Trace, right: Trace, *, recorded: bool = False) -> str:
    """Both runs and the verdict for the browser."""
    lanes = {"left": lane(left), "right": lane(right)}
    shared = num_shared(left.token_ids, right.token_ids)
    return to_json({"serial": serial, "recorded": recorded, "shared": shared, "verdict": verdict(left, right), **lanes})


def build_race(catalog: Catalog, controls: parts.Controls) -> None:
    """Build the tab inside the current Blocks context."""
    offered = choices(catalog)
    recorded = recorded_race()
    with gr.Column(elem_classes="ns-experiment"):
        gr.HTML(f'<p class="ns-intro">{INTRO}</p>', apply_default_css=False)
        with gr.Row(elem_classes="ns-opponents"):
            left = gr.Dropdown(offered, value=PLAIN, label="Left", elem_id="race-left")
            right = gr.Dropdown(offered, value=AS_SET, label="Right", elem_id="race-right")
        with gr.Row(elem_classes="ns-go"):
            run = gr.Button("Race", variant="primary", elem_id="race-run")
            stop = gr.Button("Stop", elem_id="race-stop")
        status = gr.HTML(elem_id="race-status", apply_default_css=False, html_template='<p role="status">${value}</p>')
        first = message(0, *recorded, recorded=True) if recorded else ""
        view = component("race", render("race"), first, elem_id="race-view", label="Race")

    def start(one: str, other: str, *values: Any) -> Iterator[tuple[Any, Any]]:
        for result in race(catalog, parts.read(values), (one, other)):
            yield (result, gr.skip()) if isinstance(result, str) else ("", message(next(_serials), *result))

    inputs = [left, right, *parts.ordered(controls)]
    parts.build_experiment(run, stop, start, inputs, [status, view], "Stopped.", concurrency_limit=1, **QUIET)


def lane_settings(settings: Settings, drafter: str) -> Settings:
    """The settings of a lane.

    Raises:
        ValueError: If the lane needs drafts, but k is 0.
    """
    if drafter == PLAIN:
        return replace(settings, num_draft_tokens=0, auto=False)
    if not settings.auto and settings.num_draft_tokens == 0:
        raise ValueError("k is 0, so both lanes would be plain decoding: set Draft tokens to 1 or more")
    return settings if drafter == AS_SET else replace(settings, drafter=drafter)


def race(
    catalog: Catalog, settings: Settings, opponents: tuple[str, str] = (PLAIN, AS_SET), heats: int = HEATS
) -> Iterator[str | tuple[Trace, Trace]]:
    """Decode in two ways, in turn. Each opponent is `PLAIN`, `AS_SET` or a drafter. The fastest heat of each counts, since
    the same seed gives the same tokens.

    Yields:
        A status line, and finally both runs.

    Raises:
        ValueError: Names the invalid setting.
    """
    seeded = replace(settings, seed=fresh_seed() % 2**31 if settings.seed is None else settings.seed)
    chosen = [lane_settings(seeded, drafter) for drafter in opponents]
    if chosen[0] == chosen[1]:
        raise ValueError("both lanes are the same: choose another drafter for one of them")
    cancel = threading.Event()
    best: dict[int, Trace] = {}
    try:
        for side in (0, 1) * heats:
            if side in best and best[side].events[-1].time > LONG_SECONDS:
                continue
            for found in _heat(catalog, chosen[side], cancel):
                if isinstance(found, str):
                    yield f"Running the {('left', 'right')[side]} lane: {found} so far …"
                elif side not in best or found.events[-1].time < best[side].events[-1].time:
                    best[side] = found
    finally:
        cancel.set()
    yield best[0], best[1]


def _heat(catalog: Catalog, settings: Settings, cancel: threading.Event) -> Iterator[str | Trace]:
    """One run after a short warm-up: status lines, and finally its trace."""
    for _ in catalog.stream(settings.pair, replace(settings, max_tokens=WARM_UP_TOKENS).request("none"), cancel):
        pass
    trace = Trace()
    for event in catalog.stream(settings.pair, settings.request("none"), cancel):
        trace.append(event)
        if event.kind == EventKind.STEP and (event.step or 0) % REPORT_EVERY == 0:
            yield count(len(trace.token_ids), "token")
    yield trace
