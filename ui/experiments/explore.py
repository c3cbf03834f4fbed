"""The Explore tab: sweeps k, temperature and batch size with real runs; recorded maps at first
(`ui.record_examples`)."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import gradio as gr
from gradio.components import Component

from naive_speculate.tools.ratio import LEAST
from ui.assets import calling, render
from ui.charts.figures import Figure, build_plot
from ui.experiments.batches import BatchSample, sizes_for, sweep_batches, where_it_pays
from ui.experiments.maps import acceptance_map, batch_map, speedup_curve, speedup_map
from ui.experiments.sweep import (
    KS,
    TEMPERATURES,
    Cell,
    Progress,
    Sample,
    cells,
    finding,
    prompts_for,
    sweep,
    to_csv,
    to_rows,
)
from ui.host.catalog import Catalog
from ui.host.process import take_dicts_as_tables
from ui.labels import count, duration, percent, to_json
from ui.notify import QUIET
from ui.run import controls as parts
from ui.run.recorded import FOLDER, OF_TARGETS, models_in_words, recording_of
from ui.run.settings import Settings

S = TypeVar("S")
RECORDED = "explore.json"
DIGITS = 6
LIVE = "The button measures on this machine, with these prompts and the Run tab's."
ORDINARY = "These are ordinary questions and the head alone; a text that repeats itself gains more."
MOST_PROMPTS = 32
NO_BATCH = "No batch produced a token, so there is nothing to compare."
SHOWN: dict[str, tuple[str, Callable[[Any], str]]] = {
    "temperature": ("temperature", "{:g}".format),
    "k": ("k", "{}".format),
    "speedup": ("speedup", "{:.2f}×".format),
    "speedup_low": ("at least", "{:.2f}×".format),
    "speedup_high": ("at most", "{:.2f}×".format),
    "acceptance_rate": ("acceptance", percent),
    "tokens_per_pass": ("tokens per pass", "{:.2f}".format),
    "tokens_per_second": ("tokens/s", "{:.0f}".format),
    "plain_tokens_per_second": ("plain tokens/s", "{:.0f}".format),
    "prompts": ("prompts", "{}".format),
    "runs": ("runs", "{}".format),
}
"""The table's columns: headings and number formats, the same as in the maps."""
SPEEDUP = list(SHOWN).index("speedup")
MEASURING: dict[str, Any] = {
    "concurrency_id": "measuring",
    "concurrency_limit": 1,
    "api_visibility": "private",
}


@dataclass(frozen=True)
class Exploration:
    """Measurements of Explore: runs by k and temperature, batches by k and size; models by role,
    tokens per run, and the batches' temperature."""

    samples: list[Sample]
    batches: list[BatchSample]
    models: dict[str, str]
    tokens: int
    temperature: float

    @property
    def ks(self) -> list[int]:
        """The numbers of draft tokens per step."""
        return sorted({s.k for s in self.samples} - {0})

    def about(self, finding: str) -> str:
        """A finding with its origin, in plain text."""
        target = self.models["target"]
        models = models_in_words(target)
        prompts = count(len({s.prompt for s in self.samples}), "prompt")
        words = f"Recorded with {models}, {prompts} of {count(self.tokens, 'token')}."
        if target in OF_TARGETS:
            words += f" {ORDINARY}"
        return f"{words} {LIVE} {finding}"

    def about_batches(self, finding: str) -> str:
        """The same of a finding about the batches."""
        models, turns = models_in_words(self.models["target"]), len({s.turn for s in self.batches})
        texts = f"mean of {turns} batches per cell, texts of {count(self.tokens, 'token')}"
        return (
            f"Recorded with {models}, temperature {self.temperature:g}, {texts}. {LIVE} {finding}"
        )

    def save(self, folder: Path) -> None:
        """Write it to a file in this folder, by columns, which takes a fraction of the space."""
        columns = {
            name: rounded(_by_columns(getattr(self, name))) for name in ("samples", "batches")
        }
        text = json.dumps(vars(self) | columns, separators=(",", ":")).replace('],"', '],\n"')
        (folder / RECORDED).write_text(text + "\n", encoding="utf-8")


def recorded_exploration(folder: Path = FOLDER) -> Exploration:
    """The exploration that was recorded in this folder."""
    data = json.loads((folder / RECORDED).read_text(encoding="utf-8"))
    data["samples"] = [Sample(*row) for row in zip(*data["samples"].values(), strict=True)]
    data["batches"] = [BatchSample(*row) for row in zip(*data["batches"].values(), strict=True)]
    return Exploration(**data)


def _by_columns(samples: Sequence[Sample] | Sequence[BatchSample]) -> dict[str, list[Any]]:
    columns = fields(samples[0]) if samples else ()
    return {field.name: [getattr(sample, field.name) for sample in samples] for field in columns}


def rounded(value: Any) -> Any:
    """The same value with floats of `DIGITS` digits."""
    return json.loads(
        json.dumps(value), parse_float=lambda digits: float(f"{float(digits):.{DIGITS}g}")
    )


def build_explore(catalog: Catalog, controls: parts.Controls) -> None:
    target = catalog.of("").engine.about.models.get("target")
    recorded = recorded_exploration(recording_of(target)[0])
    settings = parts.ordered(controls)
    with gr.Column(elem_classes="ns-experiment"):
        gr.HTML(render("explore_intro"), apply_default_css=False)
        outputs = _build_maps(recorded)
        made = _build_controls(prompts_for(target), recorded.ks)
        run, stop = _build_buttons("Explore", "explore")
        _build_expected(recorded, list(made.values()))

        def start(*inputs: Any, progress: Any = gr.Progress()) -> Any:  # noqa: B008
            ks, temperatures, amount, lines, each, *values = inputs
            yield "Starting …", *[gr.skip()] * (len(outputs) - 1)
            chosen, prompts = _read(values, amount, lines)
            if not ks or not temperatures:
                raise ValueError("choose at least one k and one temperature to explore")
            ks, temperatures = sorted(ks), sorted(temperatures)
            states = sweep(catalog, chosen, prompts, int(each), ks, temperatures)
            yield from _explored(_followed(states, "runs", progress), ks, temperatures)

        stopped = "Stopped. The maps show what was measured before."
        inputs = [*made.values(), *settings]
        parts.build_experiment(
            run, stop, start, inputs, outputs, stopped, show_progress_on=outputs[0], **MEASURING
        )
        gr.HTML(render("explore_batches"), apply_default_css=False)
        _build_batches(catalog, recorded, [made["ks"], made["tokens"], made["prompts"], *settings])
        gr.HTML(render("explore_texts"), apply_default_css=False)


def _build_controls(prompts: Sequence[str], chosen_ks: Sequence[int]) -> parts.Controls:
    """The sweep's controls, in the order in which `build_explore` reads them."""
    ks, temperatures = [(str(k), k) for k in KS], [(f"{t:g}", t) for t in TEMPERATURES]
    lines = "\n".join(prompt.replace("\n", "\\n") for prompt in prompts)
    made: parts.Controls = {}
    with gr.Row():
        label = "Draft tokens per step, k"
        made["ks"] = gr.CheckboxGroup(ks, value=list(chosen_ks), label=label, elem_id="explore-k")
        chosen, at = [0.0, 0.7, 1.0, 1.3], "explore-temperature"
        made["temperatures"] = gr.CheckboxGroup(
            temperatures, value=chosen, label="Temperatures", elem_id=at
        )
        info = "More take longer and are more accurate."
        made["tokens"] = gr.Slider(
            16, 256, 64, step=16, label="Tokens per run", info=info, elem_id="explore-tokens"
        )
    with gr.Row():
        label = "Extra prompts, one per line"
        info = "Fewer are faster; five or more give intervals. \\n is a line break."
        shown: dict[str, Any] = {"lines": 3, "max_lines": 8, "scale": 2}
        made["prompts"] = gr.Textbox(
            lines, label=label, info=info, elem_id="explore-prompts", **shown
        )
        info = "How often each prompt is run. At temperature 0 once, since seeds change nothing."
        made["seeds"] = gr.Slider(
            1, 4, 1, step=1, label="Seeds per prompt", info=info, elem_id="explore-seeds"
        )
    return made


def _build_buttons(name: str, elem_id: str) -> tuple[gr.Button, gr.Button]:
    with gr.Row(elem_classes="ns-go"):
        run = gr.Button(name, variant="primary", elem_id=f"{elem_id}-run")
        return run, gr.Button("Stop", elem_id=f"{elem_id}-stop")


def _build_expected(recorded: Exploration, inputs: Sequence[Component]) -> None:
    """The line that says how long the chosen runs would take; it follows the form."""

    def say(*inputs: Any) -> str:
        ks, temperatures, tokens, lines, seeds = inputs
        runs, seconds = expected_time(
            recorded.samples,
            [k for k in KS if k in (ks or ())],
            [t for t in TEMPERATURES if t in (temperatures or ())],
            len(read_prompts("Run", lines)),
            int(tokens or 0),
            int(seeds or 0),
        )
        pace = f"about {duration(seconds)} at the recording's pace"
        return f"{count(runs, 'run')}, {pace}." if runs else ""

    line = _status("explore-expected", say(*[component.value for component in inputs]))
    gr.on(
        [component.change for component in inputs],  # type: ignore[attr-defined]
        say,
        list(inputs),
        line,
        trigger_mode="always_last",
        **QUIET,
    )


def expected_time(
    samples: Sequence[Sample],
    ks: Sequence[int],
    temperatures: Sequence[float],
    prompts: int,
    tokens: int,
    seeds: int,
) -> tuple[int, float]:
    """The number of runs of a sweep, and their seconds at the mean pace of some samples."""
    each = sum(seeds if temperature else 1 for temperature in temperatures) * prompts
    runs = each * (1 + len(ks)) if ks and seeds else 0
    paces = [1 / sample.speed for sample in samples if sample.speed]
    return runs, runs * tokens * fmean(paces) if paces else 0.0


def _build_maps(recorded: Exploration) -> list[Component]:
    made = cells(recorded.samples)
    shown = _figures(recorded.samples, recorded.ks, sorted({cell.temperature for cell in made}))
    status = _status("explore-status", recorded.about(_conclusion(recorded.samples, made)))
    titles = [f"Temperature {temperature:g}" for temperature in TEMPERATURES]
    with gr.Row(elem_id="explore-heatmap", elem_classes="ns-maps"):
        speedups = build_plot("explore-speedup", "Speedup over plain decoding", shown[0])
        maps = [speedups, build_plot("explore-acceptance", "Acceptance rate", shown[1])]
    with gr.Row(elem_id="explore-curves", elem_classes="ns-maps ns-curves"):
        maps += [
            build_plot(f"explore-curve-{n}", title, shown[2 + n]) for n, title in enumerate(titles)
        ]
    take_dicts_as_tables()
    table = gr.Dataframe(
        _table(made),
        datatype="number",
        label="Measured runs",
        show_label=False,
        interactive=False,
        buttons=[],
        elem_id="explore-table",
        # Narrower ones would cut off the headings on a phone. k is narrow, so that the edge cuts a
        # column: the table scrolls.
        column_widths=["64px" if name == "k" else "124px" for name in SHOWN],
    )
    download = gr.Button(
        "Download as CSV", elem_id="explore-csv", size="sm", elem_classes="ns-small"
    )
    csv = gr.Textbox(to_csv(made), visible=False)
    # The browser creates the file, so that none remains on the server.
    save = calling("downloads", "download", '"explore.csv", csv, "text/csv"')
    download.click(None, csv, None, js=f"(csv) => {save}", **QUIET)
    return [status, *maps, table, csv]


def _build_batches(catalog: Catalog, recorded: Exploration, inputs: Sequence[Component]) -> None:
    """The part that measures batches; its inputs are ks, tokens, prompts and the settings."""
    run, stop = _build_buttons("Measure batches", "explore-batch")
    batches = recorded.batches
    status = _status("explore-batch-status", recorded.about_batches(f"{where_it_pays(batches)}."))
    with gr.Row(elem_classes="ns-maps"):
        figure = batch_map(
            batches, sorted({s.k for s in batches} - {0}), sorted({s.size for s in batches})
        )
        plot = build_plot("explore-batches", "Speedup over plain decoding, by batch size", figure)

    def start(*inputs: Any, progress: Any = gr.Progress()) -> Any:  # noqa: B008
        ks, amount, lines, *values = inputs
        yield "Starting …", gr.skip()
        settings, prompts = _read(values, amount, lines)
        sizes = sizes_for(catalog, settings.pair)
        if not ks:
            raise ValueError("choose at least one k to measure batches with")
        if not sizes:
            raise ValueError(
                "this host does not decode batches in one process, so there is nothing to measure"
            )
        states = sweep_batches(catalog, settings, prompts, sorted(ks), sizes)
        for state, status in _followed(states, "batches", progress):
            if not state.running:
                status = f"{where_it_pays(state.samples)}." if state.samples else NO_BATCH
            yield status, to_json(batch_map(state.samples, sorted(ks), sizes))

    stopped = "Stopped. The map shows what was measured before."
    parts.build_experiment(
        run, stop, start, inputs, [status, plot], stopped, show_progress_on=status, **MEASURING
    )


def _read(values: Sequence[Any], amount: float, lines: str) -> tuple[Settings, list[str]]:
    """The Run tab's settings, as experiments use them, and the prompts. A tree would set the
    number of draft tokens."""
    settings = replace(parts.read(values), max_tokens=int(amount), tree="")
    return settings, read_prompts(settings.prompt, lines)


def _status(elem_id: str, value: str) -> gr.HTML:
    return gr.HTML(
        value,
        elem_id=elem_id,
        apply_default_css=False,
        html_template='<p role="status">${value}</p>',
        min_height=40,
    )


def read_prompts(first: str, lines: str) -> list[str]:
    """The Run tab's prompt and the extra ones, one per line, without duplicates. Raises
    ValueError if there are too many."""
    others = [line.strip().replace("\\n", "\n") for line in (lines or "").split("\n")]
    prompts = list(dict.fromkeys(prompt for prompt in (first, *others) if prompt.strip()))
    if len(prompts) > MOST_PROMPTS:
        raise ValueError(
            f"prompts may be at most {MOST_PROMPTS}, including the Run tab's, got {len(prompts)}"
        )
    return prompts or [first]


def _explored(
    states: Iterable[tuple[Progress[Sample], str]], ks: list[int], temperatures: list[float]
) -> Iterator[tuple[Any, ...]]:
    """The outputs of `_build_maps` for each state of a sweep with its status; at the end its
    conclusion is the status."""
    shown: list[Cell] = []  # until a run has a result, what was measured before stays
    for state, status in states:
        made = cells(state.samples)
        others: list[Any] = [gr.skip()] * (4 + len(TEMPERATURES))
        if made != shown:
            figures = [
                to_json(figure) if figure else ""
                for figure in _figures(state.samples, ks, temperatures)
            ]
            others = [
                *figures,
                gr.Dataframe(_table(made), datatype="number", visible=bool(made)),
                to_csv(made),
            ]
        shown = made
        yield status if state.running else _conclusion(state.samples, made), *others


def _followed(
    states: Iterator[Progress[S]], unit: str, progress: Any
) -> Iterator[tuple[Progress[S], str]]:
    """A sweep's states, each with a line about what is done, how long the rest takes at the mean
    pace so far, and the current run."""
    began = 0.0
    for state in states:
        began = began or time.monotonic()  # before its first state a sweep may warm up
        rest = ""
        if state.done:
            left = (time.monotonic() - began) * (state.total / state.done - 1)
            rest = f", about {duration(left)} left"
        yield state, f"{state.done} of {state.total} {unit} done{rest}; now {state.running}."
        progress((state.done, state.total), unit=unit)  # Gradio shows it until the next status


def _figures(
    samples: Sequence[Sample], ks: Sequence[int], temperatures: Sequence[float]
) -> list[Figure | None]:
    """Both maps, and a curve per temperature; None if nothing was run there."""
    made = cells(samples)
    known = {cell.temperature for cell in made}
    curves = (
        speedup_curve(samples, temperature) if temperature in known else None
        for temperature in TEMPERATURES
    )
    return [speedup_map(made, ks, temperatures), acceptance_map(made, ks, temperatures), *curves]


def _conclusion(samples: Sequence[Sample], made: Sequence[Cell]) -> str:
    if not made:
        return "No run produced a token, so there is nothing to compare."
    temperatures = sorted({cell.temperature for cell in made})
    findings = "; ".join(
        f"at temperature {temperature:g}, {finding(samples, temperature)}"
        for temperature in temperatures
    )
    slower = sum(cell.speedup.high is not None and cell.speedup.high < 1 for cell in made)
    words = [f"{findings[0].upper()}{findings[1:]}."]
    if slower:
        among = count(len(made), "cell")
        words.append(
            f"In {slower} of {among}, drafting was clearly slower than plain decoding (the whole"
            " interval is below 1)."
        )
    if max(cell.prompts for cell in made) < LEAST:
        words.append(
            f"Without intervals: fewer than {LEAST} prompts say too little about other prompts."
        )
    return " ".join(words)


def _table(made: Sequence[Cell]) -> dict[str, Any]:
    """The table as Gradio sends it, with a star at every k that may be the best at its
    temperature; it sorts by the numbers."""
    rows = [[row[name] for name in SHOWN] for row in to_rows(made)]
    written = [
        [
            "–" if value is None else form(value)
            for value, (_, form) in zip(row, SHOWN.values(), strict=True)
        ]
        for row in rows
    ]
    for words, cell in zip(written, made, strict=True):
        if cell.best:
            words[SPEEDUP] = f"★ {words[SPEEDUP]}"
    return {
        "headers": [heading for heading, _ in SHOWN.values()],
        "data": rows,
        "metadata": {"display_value": written},
    }
