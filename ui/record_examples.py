"""Records every example with which the page opens. Run `python -m ui.record_examples` whenever
the bundled pair changes.

The files are written to `assets/recorded`. Each recording is a function in `RECORDINGS` that
writes its files and yields its progress.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind, MeasuredSpeedup
from naive_speculate.events.trace import Trace
from ui.experiments.batches import sizes_for, sweep_batches
from ui.experiments.explore import Exploration, rounded
from ui.experiments.learn import LESSONS, LESSONS_FILE
from ui.experiments.lessons.lesson import Data, Lesson, Trial
from ui.experiments.sweep import prompts_for, sweep
from ui.host.catalog import Catalog, load_catalog
from ui.host.configuration import Configuration, PairChoice
from ui.host.measuring import NotMeasured
from ui.run.recorded import FOLDER, PLAIN, SMOLLM2, SPECULATIVE, recording_of
from ui.run.settings import Settings

Recording = Callable[[Catalog, Path], Iterator[tuple[int, int]]]
"""Writes files to the folder; yields runs done and runs in total."""

HEATS = 7
# The settings of the recorded maps.
TEMPERATURES = [0.0, 0.7, 1.0, 1.3]
SEEDS = 1
KS = [1, 2, 3, 4, 6, 8]
BATCH_KS, BATCH_TURNS = [1, 2, 4], 3
EXPLORE_TOKENS = 64


def record_run(catalog: Catalog, folder: Path) -> Iterator[tuple[int, int]]:
    """The run that visitors see first, with and without drafts.

    With one seed all runs of a kind differ only in their times, so the fastest is the least
    disturbed. The last event contains the speedup from the quietest measurement, unless the text is
    too short for one.
    """
    _, settings = recording_of(_target(catalog))
    if settings is SMOLLM2:
        settings = replace(settings, drafter="head")  # copies nothing
    settings = replace(settings, max_tokens=_written(catalog, settings))
    traces, plain, measured = list[Trace](), list[list[Event]](), list[MeasuredSpeedup]()
    for number in range(HEATS):
        traces.append(Trace(catalog.stream("", settings.request())))
        plain.append([])
        with suppress(NotMeasured):  # the text may be too short
            measured.append(catalog.measure("", settings.request(), plain[-1]))
        yield number + 1, HEATS
    fastest = min(traces, key=lambda trace: trace[-1].time)
    if measured:
        fastest[-1].speedup = min(measured, key=lambda speedup: speedup.high / speedup.low)
    fastest.save(folder / SPECULATIVE.name)
    slow = min(plain, key=lambda events: events[-1].time)
    Trace(event for event in slow if event.kind in (EventKind.STARTED, *OUTPUT_KINDS)).save(
        folder / PLAIN.name
    )


def _written(catalog: Catalog, settings: Settings) -> int:
    """The number of tokens up to the end token, which the recorded run leaves out."""
    events = [
        event for event in catalog.stream("", settings.request()) if event.kind in OUTPUT_KINDS
    ]
    return len(events) - (not events[-1].text)


def record_exploration(catalog: Catalog, folder: Path) -> Iterator[tuple[int, int]]:
    """The Explore tab's first maps."""
    prompts = prompts_for(_target(catalog))
    settings = replace(
        recording_of(_target(catalog))[1], prompt=prompts[0], max_tokens=EXPLORE_TOKENS
    )
    for state in sweep(catalog, settings, prompts, SEEDS, KS, TEMPERATURES):
        yield state.done, state.total
    sizes = sizes_for(catalog, "")
    for batches in sweep_batches(catalog, settings, prompts, BATCH_KS, sizes, BATCH_TURNS):
        yield state.total + batches.done, state.total + batches.total
    models = catalog.of("").engine.about.models
    Exploration(
        state.samples, batches.samples, models, settings.max_tokens, settings.temperature
    ).save(folder)


def record_learn(
    catalog: Catalog, folder: Path, lessons: Sequence[Lesson] | None = None
) -> Iterator[tuple[int, int]]:
    """The first pictures of these lessons, or of all; other lessons in the file stay. Raises
    ValueError if an experiment found nothing."""
    lessons = LESSONS if lessons is None else lessons
    settings = Settings(prompt=prompts_for(_target(catalog))[0], seed=1)
    file = folder / LESSONS_FILE
    lessons_so_far: dict[str, Data] = (
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    )
    yield 0, len(lessons)
    for done, lesson in enumerate(lessons, start=1):
        *_, last = lesson.measure(Trial(catalog, settings))
        if last.data is None:
            raise ValueError(f"lesson {lesson.number} found nothing to show: {last.status}")
        lessons_so_far[str(lesson.number)] = rounded(last.data)
        text = json.dumps(
            dict(sorted(lessons_so_far.items(), key=lambda item: int(item[0]))),
            ensure_ascii=False,
            indent=1,
        )
        file.write_text(text + "\n", encoding="utf-8")
        yield done, len(lessons)


def _target(catalog: Catalog) -> str:
    return catalog.of("").engine.about.models["target"]


RECORDINGS: dict[str, Recording] = {
    "run": record_run,
    "explore": record_exploration,
    "lessons": record_learn,
}
OF_LESSONS: dict[str, Recording] = {
    f"lesson-{lesson.number}": partial(record_learn, lessons=[lesson]) for lesson in LESSONS
}
"""One lesson each, for those that a busy machine recorded."""
KINDS = f"{', '.join(RECORDINGS)}, lesson-1 to lesson-{len(LESSONS)}"


def record(catalog: Catalog, folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        with tqdm(desc=name, unit="run") as bar:
            for done, total in (RECORDINGS | OF_LESSONS)[name](catalog, folder):
                bar.total = total
                bar.update(done - bar.n)
    for path in sorted(folder.iterdir()):
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ui.record_examples", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"what to record: {KINDS}; default: all but single lessons",
    )
    parser.add_argument(
        "--target",
        help="target model: a Hub id, a folder or a GGUF file; default: the bundled pair",
    )
    parser.add_argument("--draft", help="draft model")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="output folder (%(default)s)")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in RECORDINGS | OF_LESSONS]:
        parser.error(f"NAME must be one of {KINDS}, got {unknown[0]!r}")
    if args.draft and not args.target:
        parser.error(f"--draft needs a --target as well, got only {args.draft!r}")
    catalog = load_catalog(
        Configuration((PairChoice("recorded", args.target, args.draft),), device="cpu")
    )
    try:
        catalog.warm_up()
        record(catalog, args.folder, args.names or list(RECORDINGS))
    finally:
        catalog.close()


if __name__ == "__main__":
    main()
