"""The places of a run's headline, which `assets/js/stats.js` fills as the stage goes on, and a run's title."""

from naive_speculate.events.trace import Trace
from naive_speculate.speculate.draft import DRAFTERS
from ui.explain.glossary import link

TILES = {
    "Acceptance rate": "acceptance-rate",
    "Tokens per target pass": "tokens-a-pass",
    "Tokens per second": "token",
    "Speedup": "speedup",
}
"""The numbers, each with its term in the glossary."""
MEASURE = (
    '<a href="#chart-waterfall" data-rest hidden>Where did the rest go?</a>'
    '<button type="button" data-measure hidden>Measure</button>'
)
"""What the speedup's place offers: the way to the waterfall, or to measure where it was not."""


def headline() -> str:
    """The markup: a sentence on what is seen, and four numbers."""
    tiles = "".join(
        f"<div><dt>{link(name, term)}</dt><dd><b>–</b><span></span>{MEASURE if name == 'Speedup' else ''}</dd></div>"
        for name, term in TILES.items()
    )
    return f'<div id="stats"><p class="ns-sentence"></p><dl class="ns-tiles">{tiles}</dl></div>'


def title(trace: Trace) -> str:
    """One line on a run's settings, in plain text."""
    started, settings = trace.started, trace.settings
    k = settings.get("num_draft_tokens")
    drafter = DRAFTERS.get(str(settings.get("drafter")))
    strategy = str(settings.get("verify_strategy", "")).replace("_", " ")
    temperature = settings.get("temperature")
    parts = [
        drafter.title.lower() if drafter and drafter.title and k != 0 else "",
        strategy,
        f"k = {k}" if k is not None else "",
        f"temperature {temperature:g}" if isinstance(temperature, int | float) else "",
        f"seed {started.seed}" if started and started.seed is not None else "",
    ]
    return " · ".join(part for part in parts if part)[:200]
