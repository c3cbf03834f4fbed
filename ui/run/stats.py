"""A run's four numbers (`assets/js/stats.js` fills them) and its title."""

from naive_speculate.events.trace import Trace
from naive_speculate.speculate.draft import DRAFTERS

TILES = {
    "Acceptance rate": "acceptance-rate",
    "Tokens per target pass": "tokens-per-pass",
    "Tokens per second": "token",
    "Speedup": "speedup",
}
"""The numbers, each with its glossary term."""


def title(trace: Trace) -> str:
    """A run's settings in one line of plain text."""
    started, settings = trace.started, trace.settings
    k, temperature = settings.get("num_draft_tokens"), settings.get("temperature")
    drafter = DRAFTERS.get(str(settings.get("drafter")))
    parts = [
        drafter.title.lower() if drafter and drafter.title and k != 0 else "",
        f"tree {settings['tree']}" if settings.get("tree") and k != 0 else "",
        "argmax drafts" if settings.get("draft_sampling") == "argmax" else "",
        str(settings.get("verify_strategy", "")).replace("_", " "),
        f"k = {k}" if k is not None else "",
        f"temperature {temperature:g}" if isinstance(temperature, int | float) else "",
        f"seed {started.seed}" if started and started.seed is not None else "",
    ]
    return " · ".join(part for part in parts if part)[:200]
