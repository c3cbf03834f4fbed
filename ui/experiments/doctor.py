"""The doctor's room: explains and charts an engine's pasted log."""

import io
import re
from typing import Any

from rich.console import Console

from naive_speculate.tools.doctor import Diagnosis, diagnose, read
from naive_speculate.tools.doctor.diagnosis import from_words
from naive_speculate.tools.doctor.report import (
    best_window,
    caveats,
    figures,
    no_problems,
    show,
    shown_windows,
)
from ui.assets import ROOT, component, render
from ui.charts.figures import (
    ACCEPTED,
    DRAFT,
    INK,
    PAGE,
    RESAMPLED,
    TARGET,
    Figure,
    axis,
    bars,
    empty,
    figure,
    inside,
    line,
)
from ui.checks import in_labels
from ui.experiments.rooms import answer_form, room, text_of
from ui.labels import number, percent

# engines with an example log in `assets/doctor`
EXAMPLES = {"vLLM": "vllm", "llama.cpp": "llamacpp", "SGLang": "sglang"}
_OWN_OPTIONS = re.compile(
    r" \((?:--(?:speed|plain-speed|draft-cost|verify-cost|num-draft-tokens)(?:, )?)+\)"
)
"""Options of the command line in the findings; the page has fields for them."""
CHARTS = {"places": "Acceptance by position in the window", "windows": "Where drafting pays off"}
WIDTH = 96
TITLE = "This cannot be read"
FIELDS = {
    "log": ("the text", 100_000),
    "draft_cost": ("“Draft cost”", 60),
    "verify_cost": ("“Cost of verifying 1, 2, 3 … tokens”", 200),
    "num_draft_tokens": ("“Draft tokens per step”", 6),
}
"""The form's labels and longest inputs by field name (`ui/templates/doctor.html`)."""


def build_doctor() -> None:
    markup = room("doctor", "doctor", examples=EXAMPLES, charts=CHARTS)
    names = {"label": "Doctor", "elem_id": "doctor"}
    view = component(
        "rooms",
        markup,
        mount="mountDoctor",
        events=["examine"],
        server_functions=[example],
        **names,
    )
    answer_form(view.examine, view, findings, TITLE, concurrency_limit=2)


def example(engine: object) -> str:
    """An engine's example log; empty for an unknown engine."""
    name = EXAMPLES.get(str(engine))
    return (ROOT / "doctor" / f"{name}.txt").read_text(encoding="utf-8") if name else ""


def findings(fields: dict[str, Any]) -> dict[str, Any]:
    """Words, charts and the report, from the form's fields; a ValueError names the field that
    cannot be read by its label."""
    log, draft_cost, verify_cost, window = (
        text_of(fields, name, *rule, needed=False) for name, rule in FIELDS.items()
    )
    try:
        if window.strip() and not (window.strip().isascii() and window.strip().isdigit()):
            raise ValueError(f"num_draft_tokens must be a whole number, got {window!r:.40}")
        costs, basis = from_words(draft_cost, verify_cost)
        diagnosis = diagnose(
            read(log), costs, num_draft_tokens=int(window) if window.strip() else None
        )
    except ValueError as error:
        raise ValueError(
            in_labels(error, {name: label for name, (label, _) in FIELDS.items() if name != "log"})
        ) from None
    console = Console(
        file=io.StringIO(), width=WIDTH, highlight=False, record=True, color_system=None
    )
    show(diagnosis, console, basis)
    words = render(
        "doctor_findings",
        engine=diagnosis.reading.engine,
        format=diagnosis.reading.format,
        figures=figures(diagnosis),
        best=best_window(diagnosis, basis) if diagnosis.windows else "",
        suspects=[
            f"{suspect.words} Measure next: {suspect.next}" for suspect in diagnosis.suspects
        ],
        no_problems=no_problems(diagnosis),
        caveats=[line for line in caveats(diagnosis) if not line.startswith("*")],
    )
    charts = {"places": places_chart(diagnosis), "windows": windows_chart(diagnosis)}
    return {"words": _OWN_OPTIONS.sub("", words), "report": console.export_text(), "charts": charts}


def places_chart(diagnosis: Diagnosis) -> Figure:
    """Acceptance by position, if reached and of all steps, with α as a line."""
    rates = diagnosis.unconditional
    if not rates:
        return empty("This log format does not report acceptance by position.")
    x = list(range(1, len(rates) + 1))
    reached = [
        place for place, rate in zip(x, diagnosis.conditional, strict=True) if rate is not None
    ]
    kept = [rate for rate in diagnosis.conditional if rate is not None]
    hover = "position %{x}: accepted in %{text} of"
    texts = inside([percent(rate) for rate in kept]) | {"insidetextfont": {"color": PAGE}}
    marks = {"text": [percent(rate) for rate in rates], "marker": {"symbol": "diamond", "size": 8}}
    traces = [
        bars("if reached", reached, kept, ACCEPTED, f"{hover} the steps that reached it", **texts),
        line(
            "of all steps",
            x,
            list(rates),
            RESAMPLED,
            f"{hover} all steps",
            dash="dot",
            mode="lines+markers",
            **marks,
        ),
    ]
    if diagnosis.alpha is not None:
        alpha = f"α = {number(diagnosis.alpha)}"
        traces.append(
            line("α", [0.5, len(rates) + 0.5], [diagnosis.alpha] * 2, INK, alpha, dash="dash")
        )
    return figure(
        traces,
        takeaway=(
            f"Position 1 is accepted in {percent(rates[0])} of the steps, position {len(rates)} in"
            f" {percent(rates[-1])}."
        ),
        x=axis("position in the window", 0.4, len(rates) + 0.6, dtick=1 + (len(rates) - 1) // 10),
        y={"range": [0, 1.08], "tickformat": ".0%", "tickvals": [0, 0.25, 0.5, 0.75, 1]},
    )


def windows_chart(diagnosis: Diagnosis) -> Figure:
    """The highest draft cost at which each window pays off, and the actual cost if given."""
    windows = shown_windows(diagnosis)
    limits = [window.break_even_draft_cost or 0.0 for window in windows]
    if not windows or not any(limits):
        return empty(
            "No window pays off."
            if windows
            else "The log does not report the window length, so α is unknown."
        )
    ks = [window.k for window in windows]
    hover = "k = %{x}: pays off while a draft pass costs less than %{text}"
    fill = {
        "mode": "lines+markers",
        "fill": "tozeroy",
        "fillcolor": "rgba(128, 128, 128, 0.16)",
        "marker": {"size": 7},
        "text": [number(limit) for limit in limits],
    }
    traces = [line("breaks even", ks, limits, TARGET, hover) | fill]
    takeaway = (
        f"Below the line drafting pays off: with k = 1 up to a draft cost of {number(limits[0])}, "
        f"with k = {ks[-1]} up to {number(limits[-1])}."
    )
    top = max(limits)
    if diagnosis.costs is not None:
        own, takeaway = _own_cost(diagnosis, diagnosis.costs.draft, ks[-1])
        traces += own
        top = max(top, min(diagnosis.costs.draft, 2 * top))
    return figure(
        traces,
        takeaway=takeaway,
        x=axis("draft tokens per step, k", 0.5, ks[-1] + 0.5, dtick=1 + len(ks) // 11),
        y=axis("draft cost", 0, 1.12 * top),
    )


def _own_cost(diagnosis: Diagnosis, draft: float, longest: int) -> tuple[list[dict[str, Any]], str]:
    """A line at the actual draft cost up to the longest window, a star at the best window if
    drafting pays off, and the takeaway."""
    hover = f"draft cost {number(draft)}"
    yours = line("yours", [0.5, longest + 0.5], [draft] * 2, DRAFT, hover, dash="dash")
    best = next(
        (window for window in shown_windows(diagnosis) if window.k == diagnosis.best_k), None
    )
    if best is None:
        return [yours], "Drafting does not pay off."
    times = number(best.speedup or 0.0)
    hover = f"best: k = {best.k}, {times}×"
    star = {"symbol": "star", "size": 15, "color": DRAFT}
    star_line = line("best k", [best.k], [draft], DRAFT, hover, mode="markers", marker=star)
    return [yours, star_line], f"Best: k = {best.k}, {times} times as fast as plain decoding."
