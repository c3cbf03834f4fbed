"""Records every example with which the page opens. Run `python -m ui.record_examples` whenever the bundled pair changes.

The files are written to `assets/recorded`. Each recording is a function in `RECORDINGS` that writes its files and yields
its progress.
"""

import argparse
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from naive_speculate.events import MeasuredSpeedup
from naive_speculate.events.trace import Trace
from ui.experiments.batches import BatchSample, sizes_for, sweep_batches
from ui.experiments.learn_recordings import FILE as LESSONS_FILE
from ui.experiments.learn_recordings import record_lessons
from ui.experiments.lessons.course import LESSONS
from ui.experiments.opening_search import SEEDS as OPENING_SEEDS
from ui.experiments.opening_search import search
from ui.experiments.race import SHOWN, race
from ui.experiments.recordings import Exploration, save_race
from ui.experiments.sweep import KS, PROMPTS, Sample, sweep
from ui.host.catalog import Catalog, load_catalog
from ui.host.configuration import Configuration, PairChoice
from ui.run.recorded import FOLDER, SPECULATIVE, START
from ui.run.settings import Settings

Recording = Callable[[Catalog, Path], Iterator[tuple[int, int]]]
"""Writes files to the folder; yields runs done and runs in total."""

HEATS = 7
TEMPERATURES = [0.0, 0.7, 1.0, 1.3]
SEEDS = 2
BATCH_KS = [1, 2, 4, 6, 8]
EXPLORE_TOKENS = 64
"""The settings of the recorded maps."""


def record_run(catalog: Catalog, folder: Path, settings: Settings = START, heats: int = HEATS) -> Iterator[tuple[int, int]]:
    """The run that visitors see first.

    With one seed all runs differ only in their times, so the fastest is the least disturbed. Its last event contains the
    speedup from the quietest measurement.
    """
    traces, measured = list[Trace](), list[MeasuredSpeedup]()
    for number in range(heats):
        traces.append(Trace(catalog.stream("", settings.request(), threading.Event())))
        measured.append(catalog.measure("", settings.request()))
        yield number + 1, heats
    fastest = min(traces, key=lambda trace: max(event.time for event in trace))
    fastest[-1].speedup = min(measured, key=lambda found: found.high / found.low)
    fastest.save(folder / SPECULATIVE.name)


def record_race(catalog: Catalog, folder: Path, settings: Settings = START, heats: int = HEATS) -> Iterator[tuple[int, int]]:
    """The Race tab's first race: plain decoding against the default drafter at temperature 0, where the texts are equal."""
    yield 0, 1
    *_, found = race(catalog, replace(settings, temperature=0.0), heats=heats)
    if isinstance(found, tuple):
        left, right = (Trace(event for event in trace if event.kind in SHOWN) for trace in found)
        save_race(left, right, folder)
    yield 1, 1


def record_exploration(
    catalog: Catalog,
    folder: Path,
    settings: Settings = START,
    ks: list[int] = KS,
    temperatures: list[float] = TEMPERATURES,
    prompts: list[str] = PROMPTS,
    seeds: int = SEEDS,
    batch_ks: list[int] = BATCH_KS,
) -> Iterator[tuple[int, int]]:
    """The Explore tab's first maps."""
    settings = replace(settings, max_tokens=min(settings.max_tokens, EXPLORE_TOKENS))
    samples: list[Sample] = []
    batches: list[BatchSample] = []
    total = 0
    for state in sweep(catalog, settings, prompts, seeds, ks, temperatures, threading.Event()):
        samples, total = state.samples, state.total
        yield state.done, total
    for together in sweep_batches(catalog, settings, prompts, batch_ks, sizes_for(catalog, ""), threading.Event()):
        batches = together.samples
        yield total + together.done, total + together.total
    models = catalog.of("").engine.about.models
    Exploration(samples, batches, models, settings.max_tokens, settings.temperature).save(folder)


def record_learn(catalog: Catalog, folder: Path, settings: Settings = START) -> Iterator[tuple[int, int]]:
    """The lessons' first pictures."""
    yield 0, len(LESSONS)
    for done, lesson in enumerate(LESSONS, start=1):
        record_lessons(catalog, settings, folder / LESSONS_FILE.name, [lesson])
        yield done, len(LESSONS)


def record_opening(
    catalog: Catalog, folder: Path, settings: Settings = START, prompts: list[str] = PROMPTS, seeds: int = OPENING_SEEDS
) -> Iterator[tuple[int, int]]:
    """The step with which the page opens.

    Raises:
        ValueError: If no step both accepted and rejected a draft token.
    """
    opening = None
    for done, total, best in search(catalog, settings, prompts, seeds):
        opening = best
        yield done, total
    if opening is None:
        raise ValueError("no step both accepted and rejected a draft token: nothing to open with")
    opening.save(folder)


RECORDINGS: dict[str, Recording] = {
    "run": record_run,
    "race": record_race,
    "explore": record_exploration,
    "lessons": record_learn,
    "opening": record_opening,
}


def record(catalog: Catalog, folder: Path, names: list[str]) -> None:
    """Make these recordings and show their progress."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        with tqdm(desc=name, unit="run") as bar:
            for done, total in RECORDINGS[name](catalog, folder):
                bar.total = total
                bar.update(done - bar.n)
    for path in sorted(folder.iterdir()):
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m ui.record_examples", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to record: {', '.join(RECORDINGS)}; default: all")
    parser.add_argument("--target", help="target model: a Hub id, a folder or a GGUF file; default: the bundled pair")
    parser.add_argument("--draft", help="draft model")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="output folder (%(default)s)")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in RECORDINGS]:
        parser.error(f"NAME must be one of {', '.join(RECORDINGS)}, got {unknown[0]!r}")
    if args.draft and not args.target:
        parser.error(f"--draft needs a --target as well, got only {args.draft!r}")
    catalog = load_catalog(Configuration((PairChoice("recorded", args.target, args.draft),), device="cpu"))
    try:
        catalog.warm_up()
        record(catalog, args.folder, args.names or list(RECORDINGS))
    finally:
        catalog.close()


if __name__ == "__main__":
    main()
