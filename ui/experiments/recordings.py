"""The recordings with which the tabs Explore and Learn open (see `ui.record_examples`)."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pandas

from ui.experiments.batches import BatchSample
from ui.experiments.sweep import Sample
from ui.labels import count
from ui.run.recorded import FOLDER, OF_TARGETS, models_in_words

EXPLORE, LESSONS_FILE = "explore.json", "lessons.json"
DIGITS = 6
LIVE = "The button measures on this machine, with these prompts and the Run tab's."
ORDINARY = "These are ordinary questions and the head alone; a text that repeats itself gains more."
S = TypeVar("S", Sample, BatchSample)


@dataclass(frozen=True)
class Exploration:
    """Measurements of Explore: runs by k and temperature, batches by k and size; models by role, tokens per run, and the
    batches' temperature."""

    samples: list[Sample] = field(default_factory=list)
    batches: list[BatchSample] = field(default_factory=list)
    models: dict[str, str] = field(default_factory=dict)
    tokens: int = 0
    temperature: float = 0.0

    def about(self, finding: str) -> str:
        """A finding with its origin, in plain text; empty if nothing was recorded."""
        if not self.samples:
            return ""
        target = self.models["target"]
        models, prompts = models_in_words(target), count(len({s.prompt for s in self.samples}), "prompt")
        words = f"Recorded with {models}, {prompts} of {count(self.tokens, 'token')}."
        if target in OF_TARGETS:
            words += f" {ORDINARY}"
        return f"{words} {LIVE} {finding}"

    def about_batches(self, finding: str) -> str:
        """The same of a finding about the batches."""
        models, turns = models_in_words(self.models["target"]), len({s.turn for s in self.batches})
        texts = f"mean of {turns} batches per cell, texts of {count(self.tokens, 'token')}"
        return f"Recorded with {models}, temperature {self.temperature:g}, {texts}. {LIVE} {finding}"

    def save(self, folder: Path) -> None:
        """Write it to a file in this folder, by columns, which takes a fraction of the space."""
        columns = {name: rounded(pandas.DataFrame(getattr(self, name)).to_dict("list")) for name in ("samples", "batches")}
        text = json.dumps(vars(self) | columns, separators=(",", ":")).replace('],"', '],\n"')
        (folder / EXPLORE).write_text(text + "\n", encoding="utf-8")


def recorded_exploration(folder: Path = FOLDER) -> Exploration:
    """The recorded exploration; an empty one if there is none."""
    path = folder / EXPLORE
    if not path.exists():
        return Exploration()
    data = json.loads(path.read_text(encoding="utf-8"))
    return Exploration(**{**data, "samples": _rows(Sample, data["samples"]), "batches": _rows(BatchSample, data["batches"])})


def recorded_lesson(number: int, folder: Path = FOLDER) -> dict[str, Any]:
    """A lesson's recording in this folder, as data for `Lesson`."""
    data: dict[str, Any] = json.loads((folder / LESSONS_FILE).read_text(encoding="utf-8"))[str(number)]
    return data


def rounded(value: Any) -> Any:
    """The same value with floats of `DIGITS` digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def _rows(kind: type[S], columns: dict[str, list[Any]]) -> list[S]:
    return [kind(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
