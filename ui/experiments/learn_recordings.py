"""Records and reads each lesson's experiment; lessons open with the recordings of the page's default pair."""

import json
import threading
from collections.abc import Iterable
from pathlib import Path

from ui.experiments.lessons.course import LESSONS
from ui.experiments.lessons.lesson import Data, Lesson, Trial
from ui.experiments.recordings import rounded
from ui.host.catalog import Catalog
from ui.run.recorded import FOLDER
from ui.run.settings import Settings

FILE = FOLDER / "lessons.json"


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


def recorded_lesson(number: int, folder: Path = FOLDER) -> Data:
    """A lesson's recording in this folder."""
    data: Data = json.loads((folder / FILE.name).read_text(encoding="utf-8"))[str(number)]
    return data
