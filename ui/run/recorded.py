"""The recorded run that every visitor sees first: a real run of the bundled pair."""

from naive_speculate.events.trace import Trace
from ui.assets import ROOT
from ui.run.controls import EXAMPLES
from ui.run.runs import Run
from ui.run.settings import Settings
from ui.run.stats import title

FOLDER = ROOT / "recorded"
SPECULATIVE = FOLDER / "speculative.jsonl"
START = Settings(prompt=next(iter(EXAMPLES.values())), seed=1)
"""The settings of the recording, and the controls' initial values."""


def recorded_run() -> Run:
    """The recorded run; its last event contains the measured speedup."""
    trace = Trace.load(SPECULATIVE)
    run = Run(trace, id="recorded", title=title(trace))
    run.settings = START
    return run
