"""The Explore tab: sweeps k and temperature with real runs, and maps acceptance and speedup."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import gradio as gr

from ui.charts.plot import build_plot
from ui.experiments.heatmaps import acceptance_map, speedup_map
from ui.experiments.sweep import Cell, best_cells, sweep, to_csv, to_frame
from ui.host.catalog import Catalog
from ui.labels import to_json
from ui.notify import warn
from ui.run import controls as parts
from ui.run.settings import Settings

INTRO = (
    "How many tokens should the draft guess at once? Every field of these maps is a real run with the prompt and settings "
    "of the Run tab, measured against a plain run at the same temperature."
)
KS = [1, 2, 3, 4, 5, 6, 8, 12]
TEMPERATURES = [0.0, 0.3, 0.7, 1.0, 1.3, 1.6]
SHOWN = {
    "temperature": ("temperature", "{:g}"),
    "k": ("k", "{}"),
    "acceptance_rate": ("drafts kept", "{:.1%}"),
    "tokens_per_pass": ("tokens a pass", "{:.2f}"),
    "tokens_per_second": ("tokens/s", "{:.0f}"),
    "plain_tokens_per_second": ("plain tokens/s", "{:.0f}"),
    "speedup": ("speedup", "{:.2f}×"),
}
"""The table's columns on the page: their headings, and how their numbers are written."""
SAVE = """(csv) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
    link.download = "explore.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}"""
"""The browser makes the file, so that none is left on the server."""


def build_explore(catalog: Catalog, controls: parts.Controls) -> parts.Controls:
    """Build the tab inside the current Blocks context.

    Args:
        catalog: The models.
        controls: The components that hold the settings, by field.

    Returns:
        dict: The tab's own controls, "ks", "temperatures" and "tokens", for whoever wants to turn them.
    """
    with gr.Column(elem_classes="ns-experiment"):
        gr.HTML(f'<p class="ns-intro">{INTRO}</p>', apply_default_css=False)
        with gr.Row():
            ks = gr.CheckboxGroup(
                [(str(k), k) for k in KS], value=[1, 2, 4, 6, 8], label="Drafts a round, k", elem_id="explore-k"
            )
            temperatures = gr.CheckboxGroup(
                [(f"{t:g}", t) for t in TEMPERATURES],
                value=[0.0, 0.7, 1.0, 1.3],
                label="Temperatures",
                elem_id="explore-temperature",
            )
            tokens = gr.Slider(
                16, 256, 64, step=16, label="Tokens a run", info="More take longer and say more.", elem_id="explore-tokens"
            )
        with gr.Row(elem_classes="ns-go"):
            run = gr.Button("Explore", variant="primary", elem_id="explore-run")
            stop = gr.Button("Stop", elem_id="explore-stop")
        status = gr.HTML(
            elem_id="explore-status", apply_default_css=False, html_template='<p role="status">${value}</p>', min_height=40
        )
        with gr.Row(elem_id="explore-heatmap", elem_classes="ns-maps"):
            faster = build_plot("explore-speedup", "Speedup over plain decoding; ★ marks the best k")
            kept = build_plot("explore-acceptance", "Share of drafts kept")
        table = gr.Dataframe(
            label="Measured runs", show_label=False, interactive=False, visible=False, buttons=[], elem_id="explore-table"
        )
        download = gr.Button("Download as CSV", visible=False, elem_id="explore-csv", size="sm", elem_classes="ns-small")
        csv = gr.Textbox(visible=False)
        outputs = [status, faster, kept, table, csv, download]

    def start(chosen_ks: list[int], chosen: list[float], amount: int, *values: Any, progress: Any = gr.Progress()) -> Any:  # noqa: B008
        yield "Starting …", *[gr.skip()] * 5
        try:
            settings = replace(parts.read(values), max_tokens=int(amount))
            yield from _explore(catalog, settings, sorted(chosen_ks), sorted(chosen), progress)
        except ValueError as error:
            warn(error)
            yield "", *[gr.skip()] * 5

    quiet: dict[str, Any] = {"api_visibility": "private"}
    going = run.click(
        start,
        [ks, temperatures, tokens, *parts.ordered(controls)],
        outputs,
        show_progress_on=status,
        concurrency_id="measuring",
        concurrency_limit=1,
        **quiet,
    )
    download.click(None, csv, None, js=SAVE, show_progress="hidden", **quiet)
    parts.build_stop(stop, going, status, "Stopped; the maps show what was run.")
    return {"ks": ks, "temperatures": temperatures, "tokens": tokens}


def _explore(
    catalog: Catalog, settings: Settings, ks: Sequence[int], temperatures: Sequence[float], progress: Any
) -> Iterator[tuple[Any, ...]]:
    if not ks or not temperatures:
        raise ValueError("choose at least one k and one temperature to explore")
    cancel = threading.Event()
    shown: list[Cell] | None = None
    try:
        for place in sweep(catalog, settings, ks, temperatures, cancel):
            progress((place.done, place.total), desc=place.running, unit="runs")
            if place.running and place.cells == shown:
                continue
            shown = place.cells
            said = (
                f"{place.done} of {place.total} runs done; now {place.running}." if place.running else _conclusion(place.cells)
            )
            yield (said, *_maps(place.cells, ks, temperatures), _table(place.cells), *_file(place.cells, bool(place.running)))
    finally:
        cancel.set()


def _maps(cells: list[Cell], ks: Sequence[int], temperatures: Sequence[float]) -> tuple[str, str]:
    return to_json(speedup_map(cells, ks, temperatures)), to_json(acceptance_map(cells, ks, temperatures))


def _conclusion(cells: Sequence[Cell]) -> str:
    if not cells:
        return "No run gave a token, so there is nothing to compare."
    best = best_cells(cells)
    parts_ = [f"{cell.k} at temperature {temperature:g} ({cell.speedup:.2f}×)" for temperature, cell in sorted(best.items())]
    slower = sum(cell.speedup < 1 for cell in cells)
    said = "Best k: " + ", ".join(parts_) + "."
    return said + (f" In {slower} of {len(cells)} fields drafting was slower than plain decoding." if slower else "")


def _file(cells: Sequence[Cell], running: bool) -> tuple[Any, Any]:
    """The text of the file, and the button that saves it."""
    if running or not cells:
        return gr.skip(), gr.skip()
    return to_csv(cells), gr.Button(visible=True)


def _table(cells: Sequence[Cell]) -> gr.Dataframe:
    """The table with a star at the best k of every temperature; sorting goes by the numbers."""
    best = best_cells(cells)
    starred = [row for row, cell in enumerate(cells) if best[cell.temperature] is cell]
    frame = to_frame(cells)[list(SHOWN)].rename(columns={name: heading for name, (heading, _) in SHOWN.items()})
    heading, form = SHOWN["speedup"]
    written = frame.style.format(dict(SHOWN.values())).format("★ " + form, subset=(starred, [heading]))
    return gr.Dataframe(written, visible=bool(cells))
