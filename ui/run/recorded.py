"""The recorded run that every visitor sees first, with and without drafts: a real run of the pair that the page has loaded."""

from pathlib import Path

from naive_speculate.events.trace import Trace
from naive_speculate.known import KNOWN
from ui.assets import ROOT
from ui.run.controls import EXAMPLES, QUESTIONS
from ui.run.runs import Run
from ui.run.settings import Settings, title

FOLDER = ROOT / "recorded"
SPECULATIVE, PLAIN = FOLDER / "speculative.jsonl", FOLDER / "plain.jsonl"
START = Settings(prompt=next(iter(EXAMPLES.values())), seed=1)  # the settings of the bundled pair's recording
SMOLLM2 = Settings(prompt=QUESTIONS[0], seed=1, num_draft_tokens=3, temperature=0.0)
OF_TARGETS = {KNOWN["smollm2"].target: (FOLDER / "smollm2", SMOLLM2)}
"""Folders and settings of other pairs' recordings, by the target's name."""


def recording_of(target: str | None) -> tuple[Path, Settings]:
    """Folder and settings of the recordings for this target; the bundled pair's if it has none."""
    return OF_TARGETS.get(target or "", (FOLDER, START))


def models_in_words(target: str | None) -> str:
    """The models of the recording for this target."""
    return f"{str(target).rpartition('/')[2]} and its draft head" if target in OF_TARGETS else "the bundled models"


def recorded_run(target: str | None = None) -> Run:
    """The recorded run for this target; its last event contains the measured speedup. Its settings are the controls' first."""
    folder, settings = recording_of(target)
    trace = Trace.load(folder / SPECULATIVE.name)
    run = Run(trace, id="recorded", title=title(trace))
    run.plain, run.settings = list(Trace.load(folder / PLAIN.name)), settings
    return run
