"""The Learn tab: six short lessons, each with an experiment on the real models, often made with the other tabs."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from naive_speculate.events import Event, EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.sampling.random_source import fresh_seed
from ui.assets import ROOT
from ui.charts.plot import build_plot
from ui.experiments.lossless import conclusion, convergence, draw, shares
from ui.experiments.passes import costs_in_words, measure_passes, pass_costs
from ui.explain.inspector import distributions, explain, to_html
from ui.host.catalog import Catalog
from ui.labels import to_json
from ui.notify import warn
from ui.run import controls as parts

LESSONS = 6
DRAWS = 1500
LESSON_TOKENS = 80
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}


@dataclass(frozen=True)
class Places:
    """What the lessons turn and open.

    Attributes:
        tabs: The page's tabs; their ids are "run", "race" and "explore".
        controls: The components that hold the settings, by field.
        explore: The controls of the Explore tab: "ks", "temperatures" and "tokens".
    """

    tabs: gr.Tabs
    controls: parts.Controls
    explore: parts.Controls


def text_of(lesson: int) -> str:
    """A lesson's text, as Markdown."""
    return (ROOT / "lessons" / f"{lesson}.md").read_text(encoding="utf-8")


def build_learn(catalog: Catalog, places: Places) -> None:
    """Build the tab inside the current Blocks context.

    Args:
        catalog: The models.
        places: What the lessons turn and open.
    """
    builders = (_slow, _draft_and_verify, _accept_or_reject, _lossless, _choosing_k, _no_gain)
    with gr.Column(elem_classes="ns-lessons"):
        for lesson, build in enumerate(builders, start=1):
            with gr.Column(elem_id=f"learn-{lesson}", elem_classes="ns-lesson"):
                gr.Markdown(text_of(lesson), elem_classes="ns-lesson-text")
                build(catalog, places)


def _button(lesson: int, name: str) -> gr.Button:
    return gr.Button(name, variant="primary", elem_id=f"learn-{lesson}-run", elem_classes="ns-small")


def _note(text: str) -> None:
    gr.HTML(f'<p class="ns-note">{text}</p>', apply_default_css=False)


def _status(lesson: int) -> gr.HTML:
    return gr.HTML(elem_id=f"learn-{lesson}-status", apply_default_css=False, html_template='<p role="status">${value}</p>')


def _visit(button: gr.Button, note: str, places: Places, tab: str, press: str, changes: dict[Any, Any]) -> None:
    """Let a button set controls, open a tab, and press the button there; the note says so beforehand."""
    _note(note)

    def turn() -> list[Any]:
        return [gr.Tabs(selected=tab), *changes.values()]

    # A tab is filled when it is first opened, so its button may take a moment to be there.
    click = f"""() => {{
        const press = (times) => {{
            const button = document.getElementById("{press}");
            if (button && button.offsetParent) {{ button.click(); button.scrollIntoView({{ block: "center" }}); }}
            else if (times) setTimeout(press, 50, times - 1);
        }};
        press(100);
    }}"""
    button.click(turn, None, [places.tabs, *changes], queue=False, **QUIET).then(None, None, None, js=click, **QUIET)


def _slow(catalog: Catalog, places: Places) -> None:
    button = _button(1, "Measure a pass over 1, 2, 4, 8 and 16 tokens")
    _note("Times the target on this machine, with your prompt before every pass. It takes some seconds.")
    status, chart = _status(1), build_plot("learn-1-view", "Time of one pass of the target")

    def measure(*values: Any) -> Iterator[tuple[Any, Any]]:
        cancel = threading.Event()
        yield "Measuring …", gr.skip()
        try:
            settings = replace(parts.read(values), temperature=1.0)
            known: dict[int, float] = {}
            for known in measure_passes(catalog, settings, cancel):
                yield "Measuring …", to_json(pass_costs(known))
            yield f"{costs_in_words(known)}. Reading them one by one would take {max(known)} times as long.", gr.skip()
        except ValueError as error:
            warn(error)
            yield "", gr.skip()
        finally:
            cancel.set()

    button.click(
        measure, parts.ordered(places.controls), [status, chart], concurrency_id="measuring", concurrency_limit=1, **QUIET
    )


def _draft_and_verify(_catalog: Catalog, places: Places) -> None:
    controls = places.controls
    changes = {
        controls["num_draft_tokens"]: 4,
        controls["auto"]: False,
        controls["temperature"]: 0.7,
        controls["verify_strategy"]: "speculative_sampling",
        controls["max_tokens"]: LESSON_TOKENS,
    }
    note = "Opens the Run tab and decodes your prompt with k = 4 at temperature 0.7. Each row of Rounds is one round."
    _visit(_button(2, "Watch it, four guesses a round"), note, places, "run", "run", changes)


def _accept_or_reject(catalog: Catalog, places: Places) -> None:
    button = _button(3, "Find a rejected guess and explain it")
    _note("Decodes your prompt until the dice refuse a guess, and shows the numbers that it failed by.")
    status = _status(3)
    with gr.Row(elem_id="learn-3-view", elem_classes="ns-pair"):
        words = gr.HTML(elem_id="learn-3-why", apply_default_css=False)
        chart = build_plot("learn-3-chart", "What draft and target held likely")

    def find(*values: Any) -> Iterator[tuple[Any, Any, Any]]:
        yield "Decoding until a guess is rejected …", gr.skip(), gr.skip()
        cancel = threading.Event()
        try:
            settings = parts.read(values)
            chosen = replace(
                settings,
                seed=fresh_seed() % 2**31,
                temperature=settings.temperature or 1.0,
                verify_strategy="speculative_sampling",
                num_draft_tokens=4,
                auto=False,
                drafter="model",
            )
            trace = Trace(_until_rejected(catalog.stream(chosen.pair, chosen.request(), cancel)))
            number = max((n for n, event in enumerate(trace) if event.kind == EventKind.REJECTED), default=None)
            if number is None:
                yield "This time every guess was kept. Try once more.", gr.skip(), gr.skip()
                return
            yield (
                "A real one, from a fresh run with your prompt. Press again for another.",
                to_html(explain(trace, number)),
                to_json(distributions(trace, number)),
            )
        except ValueError as error:
            warn(error)
            yield "", gr.skip(), gr.skip()
        finally:
            cancel.set()

    button.click(find, parts.ordered(places.controls), [status, words, chart], concurrency_limit=4, **QUIET)


def _until_rejected(events: Iterator[Event]) -> Iterator[Event]:
    """The run up to the end of the first round that rejects a guess which might as well have been kept."""
    found = False
    for event in events:
        yield event
        found = found or (event.kind == EventKind.REJECTED and 0.05 < (event.accept_prob or 0) < 1)
        if found and event.kind == EventKind.STEP:
            return


def _lossless(catalog: Catalog, places: Places) -> None:
    with gr.Row(elem_classes="ns-go"):
        button = _button(4, f"Draw {DRAWS:,} tokens")
        stop = gr.Button("Stop", elem_id="learn-4-stop", elem_classes="ns-small")
    _note("Takes some seconds; the charts grow as it draws.")
    status = _status(4)
    with gr.Row(elem_id="learn-4-view", elem_classes="ns-pair"):
        counted = build_plot("learn-4-shares", "Counted, and as it should be")
        falling = build_plot("learn-4-distance", "How far apart, after so many draws")

    def sample(*values: Any) -> Iterator[tuple[Any, Any, Any]]:
        cancel = threading.Event()
        yield "Drawing …", gr.skip(), gr.skip()
        try:
            settings = parts.read(values)
            chosen = replace(settings, temperature=settings.temperature or 1.0, seed=fresh_seed() % 2**31)
            census = None
            for census in draw(catalog.of(chosen.pair).engine, chosen.request(), DRAWS, cancel):
                said = f"{census.draws:,} of {DRAWS:,} drawn …"
                yield said, to_json(shares(census)), to_json(convergence(census, DRAWS))
            if census is not None:
                yield conclusion(census), gr.skip(), gr.skip()
        except ValueError as error:
            warn(error)
            yield "", gr.skip(), gr.skip()
        finally:
            cancel.set()

    inputs = parts.ordered(places.controls)
    going = button.click(sample, inputs, [status, counted, falling], concurrency_limit=2, **QUIET)
    parts.build_stop(stop, going, status, "Stopped; the charts show what was drawn.")


def _choosing_k(_catalog: Catalog, places: Places) -> None:
    explore = places.explore
    changes = {explore["ks"]: [1, 2, 3, 4, 6, 8, 12], explore["temperatures"]: [0.7], explore["tokens"]: 64}
    note = "Opens the Explore tab and runs your prompt with every k at temperature 0.7, and once plainly to compare."
    _visit(_button(5, "Try k from 1 to 12"), note, places, "explore", "explore-run", changes)


def _no_gain(_catalog: Catalog, places: Places) -> None:
    controls = places.controls
    changes = {
        controls["num_draft_tokens"]: 16,
        controls["auto"]: False,
        controls["verify_strategy"]: "speculative_sampling",
        controls["temperature"]: 2.0,
        controls["max_tokens"]: LESSON_TOKENS,
    }
    note = "Opens the Race tab and sets k = 16 at temperature 2. Afterwards, try k = 1, or temperature 0.7."
    _visit(_button(6, "Race with sixteen guesses a round"), note, places, "race", "race-run", changes)
