"""What the lessons show when they are opened: each lesson's own experiment, recorded once with the bundled pair."""

import json
import threading
from collections.abc import Iterable
from pathlib import Path

from ui.assets import ROOT
from ui.experiments.lessons.course import LESSONS
from ui.experiments.lessons.lesson import Data, Lesson, Trial
from ui.experiments.recordings import rounded
from ui.host.catalog import Catalog
from ui.run.settings import Settings

FILE = ROOT / "recorded" / "lessons.json"


def record_lessons(catalog: Catalog, start: Settings, file: Path = FILE, lessons: Iterable[Lesson] = LESSONS) -> list[str]:
    """Record lessons anew, with the prompt, pair and seed of `start`; those that are in the file already and are not among them
    stay. Returns what each experiment said at its end.

    Raises:
        ValueError: If an experiment found nothing, with what it said.
    """
    settings = Settings(prompt=start.prompt, pair=start.pair, seed=start.seed)
    found: dict[str, Data] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    said = []
    for lesson in lessons:
        *_, last = lesson.measure(Trial(catalog, settings, threading.Event()))
        if last.data is None:
            raise ValueError(f"lesson {lesson.number} found nothing to show: {last.said}")
        found[str(lesson.number)] = rounded(last.data)
        said.append(f"lesson {lesson.number}: {last.said}")
    text = json.dumps(dict(sorted(found.items())), ensure_ascii=False, indent=1)
    file.write_text(text + "\n", encoding="utf-8")
    return said


def recorded_lesson(number: int) -> Data:
    """What was recorded for a lesson."""
    data: Data = json.loads(FILE.read_text(encoding="utf-8"))[str(number)]
    return data
