"""The time of a target pass by number of tokens, measured in the steps of real runs."""

import threading
from collections.abc import Iterator
from dataclasses import replace

from naive_speculate.events import EventKind
from ui.charts.figures import MUTED, TARGET, Figure, above, bars, category_axis, figure, line, nice_ceiling
from ui.experiments.measured import undisturbed
from ui.host.catalog import Catalog
from ui.labels import milliseconds
from ui.run.settings import Settings

WIDTHS = (1, 2, 4, 8, 16)
STEPS = 4
REPEATS = 4


def measure_passes(catalog: Catalog, settings: Settings, cancel: threading.Event) -> Iterator[dict[int, float]]:
    """Undisturbed time of a target pass over 1, 2, 4 … tokens, in seconds; yields the results so far. A ValueError names the
    invalid setting."""
    times: dict[int, list[float]] = {}
    drafter = catalog.of(settings.pair).drawing
    for width in WIDTHS * REPEATS:  # alternating, so that a disturbance affects all widths
        chosen = replace(settings, num_draft_tokens=width - 1, auto=False, drafter=drafter, stop="")
        chosen = replace(chosen, max_tokens=width * (STEPS + 2))
        seen = times.setdefault(width, [])
        wanted = len(seen) + STEPS
        for event in catalog.stream(chosen.pair, chosen.request("none"), cancel):
            whole = event.kind == EventKind.STEP and event.num_draft == width - 1
            if whole and event.verify_seconds and event.step:  # the first step includes the warm-up
                seen.append(event.verify_seconds)
            if len(seen) == wanted:
                break
        if cancel.is_set():
            return
        yield {width: undisturbed(seen) for width, seen in times.items() if seen}


def pass_costs(known: dict[int, float]) -> Figure:
    """Time of a pass, compared with one pass per token; one token must have been timed."""
    x, times = list(range(len(known))), [1000 * seconds for seconds in known.values()]
    singly = [width * 1000 * known[1] for width in known]
    look = above([milliseconds(seconds) for seconds in known.values()]) | {"constraintext": "none", "textangle": 0}
    return figure(
        [
            bars("measured", x, times, TARGET, "%{text}", **look),
            line("one by one", x, singly, MUTED, "%{y:.1f} ms", dash="dash", mode="lines+markers"),
        ],
        takeaway=costs_in_words(known),
        x=category_axis([str(width) for width in known], title={"text": "tokens in one pass"}),
        y={"title": {"text": "ms"}, "range": [0, nice_ceiling(max(1.15 * max(times), min(2.0 * max(times), singly[-1])))]},
        height=300,
    )


def costs_in_words(known: dict[int, float]) -> str:
    """The largest ratio, in one line."""
    widest = max(known)
    if widest == 1:
        return f"One token: {milliseconds(known[1])}"
    return f"{widest} tokens: {known[widest] / known[1]:.1f} times the time of one"
