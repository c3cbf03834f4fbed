"""Records and reads each lesson's experiment with the bundled pair; lessons open with these recordings."""

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
    """Record these lessons with the prompt, pair and seed of `start`; other lessons in the file stay. Returns the last status
    of each experiment. Raises ValueError if an experiment found nothing, with its status."""
    settings = Settings(prompt=start.prompt, pair=start.pair, seed=start.seed)
    found: dict[str, Data] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    statuses = []
    for lesson in lessons:
        *_, last = lesson.measure(Trial(catalog, settings, threading.Event()))
        if last.data is None:
            raise ValueError(f"lesson {lesson.number} found nothing to show: {last.status}")
        found[str(lesson.number)] = rounded(last.data)
        statuses.append(f"lesson {lesson.number}: {last.status}")
    text = json.dumps(dict(sorted(found.items(), key=lambda item: int(item[0]))), ensure_ascii=False, indent=1)
    file.write_text(text + "\n", encoding="utf-8")
    return statuses


def recorded_lesson(number: int) -> Data:
    """A lesson's recording."""
    data: Data = json.loads(FILE.read_text(encoding="utf-8"))[str(number)]
    return data
