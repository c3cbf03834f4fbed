"""The doctor's room: an engine's words are pasted, and what follows from them is told and drawn."""

import html
import io
from collections.abc import Iterator
from typing import Any

import gradio as gr
from rich.console import Console

from naive_speculate.doctor import Diagnosis, diagnose, read
from naive_speculate.doctor.costs import from_words
from naive_speculate.doctor.report import best_window, caveats, figures, show, shown_windows
from naive_speculate.sampling.random_source import fresh_seed
from ui.assets import ROOT, component
from ui.charts.figures import ACCEPTED, DRAFT, INK, PAGE, RESAMPLED, TARGET, Figure, bars, empty, figure, inside, line
from ui.charts.plot import place
from ui.checks import in_labels
from ui.experiments.rooms import room
from ui.labels import number, percent, to_json
from ui.notify import QUIET, warn

EXAMPLES = {"vLLM": "vllm", "llama.cpp": "llamacpp", "SGLang": "sglang"}
"""Engines whose words lie in `assets/doctor`."""
CHARTS = {"places": "Kept by place in the draft", "windows": "Where drafting pays"}
WIDTH = 96
TITLE = "This cannot be read"
FIELDS = {
    "log": ("the text", 100_000),
    "draft_cost": ("“A draft forward costs”", 60),
    "verify_cost": ("“Verifying 1, 2, 3 … tokens costs”", 200),
    "num_draft_tokens": ("“Drafts a step”", 6),
}
"""The form's labels by the names that programs use, and how many characters each may have (`assets/doctor.html`)."""


def build_doctor() -> None:
    """Build the room inside the current Blocks context."""
    view = component("doctor", template(), events=["examine"], server_functions=[example], label="Doctor")
    # As for the words of "Draft it yourself": one question at a time, but the next one as soon as the answer is there.
    view.examine(examine, None, view, concurrency_limit=2, trigger_mode="multiple", **QUIET)


def template() -> str:
    """The room's markup."""
    examples = "".join(f'<button type="button" data-example="{name}">{name}</button>' for name in EXAMPLES)
    charts = "".join(place(f'data-chart="{name}"', title, "ns-chart") for name, title in CHARTS.items())
    return room("doctor", examples=examples, charts=charts)


def example(engine: object) -> str:
    """An engine's words; empty for one that is not known."""
    name = EXAMPLES.get(str(engine))
    return (ROOT / "doctor" / f"{name}.txt").read_text(encoding="utf-8") if name else ""


def examine(event: gr.EventData) -> Iterator[str]:
    """What follows from what was pasted, as JSON for the browser."""
    found = {}
    try:
        found = findings(event._data)
    except ValueError as error:
        warn(in_labels(error, {name: said for name, (said, _) in FIELDS.items() if name != "log"}), TITLE)
    yield to_json({"at": fresh_seed(), **found})


def findings(asked: Any) -> dict[str, Any]:
    """Words, charts and the report, from the form's fields.

    Raises:
        ValueError: Says what cannot be read.
    """
    fields = asked if isinstance(asked, dict) else {}
    given = {name: str(fields.get(name) or "") for name in FIELDS}
    for name, (said, most) in FIELDS.items():
        if len(given[name]) > most:
            raise ValueError(f"{said} may have {most:,} characters, got {len(given[name]):,}")
    log, draft_cost, verify_cost, window = given.values()
    if window.strip() and not (window.strip().isascii() and window.strip().isdigit()):
        raise ValueError(f"num_draft_tokens must be a whole number, got {window!r:.40}")
    costs, basis = from_words(draft_cost, verify_cost)
    found = diagnose(read(log), costs, num_draft_tokens=int(window) if window.strip() else None)
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, record=True, color_system=None)
    show(found, console, basis)
    charts = {"places": places_chart(found), "windows": windows_chart(found)}
    return {"words": words(found, basis), "report": console.export_text(), "charts": charts}


def words(found: Diagnosis, basis: str) -> str:
    """What was found, as HTML."""
    told = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(said)}</dd></div>" for name, said in figures(found).items()
    )
    suspects = "".join(f"<li>{html.escape(suspect.words)}</li>" for suspect in found.suspects)
    unsure = "".join(f"<li>{html.escape(line)}</li>" for line in caveats(found) if not line.startswith("*"))
    best = f'<p class="ns-findings-best">{html.escape(best_window(found, basis))}</p>' if found.windows else ""
    return (
        f"<h3>{html.escape(found.reading.engine)}, {html.escape(found.reading.format)}</h3><dl>{told}</dl>{best}"
        + (f'<ul class="ns-suspects">{suspects}</ul>' if suspects else "<p>Nothing here is suspicious.</p>")
        + (f'<ul class="ns-unsure">{unsure}</ul>' if unsure else "")
    )


def places_chart(found: Diagnosis) -> Figure:
    """Rates by place, if reached and of all steps, with α across."""
    rates = found.unconditional
    if not rates:
        return empty("This format does not tell how often single places are kept.")
    x = list(range(1, len(rates) + 1))
    reached = [place for place, rate in zip(x, found.conditional, strict=True) if rate is not None]
    kept = [rate for rate in found.conditional if rate is not None]
    traces: list[dict[str, Any]] = [
        bars(
            "if reached",
            reached,
            kept,
            ACCEPTED,
            "place %{x}: %{text} of those that reached it",
            **inside([percent(rate) for rate in kept]),
            insidetextfont={"color": PAGE},
        ),
        line(
            "of all steps",
            x,
            list(rates),
            RESAMPLED,
            "place %{x}: %{text} of all steps",
            dash="dot",
            mode="lines+markers",
            text=[percent(rate) for rate in rates],
            marker={"symbol": "diamond", "size": 8},
        ),
    ]
    if found.alpha is not None:
        alpha = f"α = {number(found.alpha)}"
        traces.append(line("α", [0.5, len(rates) + 0.5], [found.alpha] * 2, INK, alpha, dash="dash"))
    return figure(
        traces,
        takeaway=f"Place 1 is kept in {percent(rates[0])} of the steps, place {len(rates)} in {percent(rates[-1])}.",
        x={"title": {"text": "place in the draft"}, "range": [0.4, len(rates) + 0.6], "dtick": 1 + (len(rates) - 1) // 10},
        y={"range": [0, 1.08], "tickformat": ".0%", "tickvals": [0, 0.25, 0.5, 0.75, 1]},
    )


def windows_chart(found: Diagnosis) -> Figure:
    """What a draft forward may cost at most for a window to pay, and what it does cost where that was said."""
    windows = shown_windows(found)
    limits = [window.break_even_draft_cost or 0.0 for window in windows]
    if not windows or not any(limits):
        return empty("No window pays." if windows else "How long the windows were is not told, so α does not follow.")
    ks = [window.k for window in windows]
    traces: list[dict[str, Any]] = [
        line(
            "breaks even",
            ks,
            limits,
            TARGET,
            "k = %{x}: pays while a draft forward costs less than %{text}",
            mode="lines+markers",
            fill="tozeroy",
            fillcolor="rgba(128, 128, 128, 0.16)",
            text=[number(limit) for limit in limits],
            marker={"size": 7},
        )
    ]
    said = f"Below the line drafting pays: with k = 1 up to a draft cost of {number(limits[0])}, "
    said += f"with k = {ks[-1]} up to {number(limits[-1])}."
    top = max(limits)
    if found.costs is not None:
        draft = found.costs.draft
        yours = f"a draft forward costs {number(draft)}"
        traces.append(line("yours", [0.5, ks[-1] + 0.5], [draft] * 2, DRAFT, yours, dash="dash"))
        best = next((window for window in windows if window.k == found.best_k), None)
        if best is not None:
            told = f"best: k = {best.k}, {number(best.speedup or 0.0)}×"
            star = {"symbol": "star", "size": 15, "color": DRAFT}
            traces.append(line("best k", [best.k], [draft], DRAFT, told, mode="markers", marker=star))
        said = f"Best: k = {best.k}, {number(best.speedup or 0.0)} times plain decoding." if best else "Drafting does not pay."
        top = max(top, min(draft, 2 * top))
    return figure(
        traces,
        takeaway=said,
        x={"title": {"text": "drafts a step, k"}, "range": [0.5, ks[-1] + 0.5], "dtick": 1 + len(ks) // 11},
        y={"title": {"text": "cost of a draft forward"}, "range": [0, 1.12 * top]},
    )
