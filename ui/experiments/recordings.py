"""The recordings with which the tabs Explore and Learn open (see `ui.record_examples`)."""

import json
from dataclasses import dataclass
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
    """The exploration that was recorded in this folder."""
    data = json.loads((folder / EXPLORE).read_text(encoding="utf-8"))
    return Exploration(**{**data, "samples": _rows(Sample, data["samples"]), "batches": _rows(BatchSample, data["batches"])})


def recorded_lesson(number: int, folder: Path = FOLDER) -> dict[str, Any]:
    """A lesson's recording in this folder, as data for `Lesson`."""
    data: dict[str, Any] = json.loads((folder / LESSONS_FILE).read_text(encoding="utf-8"))[str(number)]
    return data


def rounded(value: Any) -> Any:
    """The same value with floats of `DIGITS` digits."""
    return json.loads(json.dumps(value), parse_float=lambda digits: float(f"{float(digits):.{DIGITS}g}"))


def _rows(kind: type[S], columns: dict[str, list[Any]]) -> list[S]:
    return [kind(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
