"""A sweep over k and batch size: where drafting stops paying off.

A target pass over one text leaves compute idle, which drafting uses. Many texts at once use it
themselves.
"""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from queue import SimpleQueue
from statistics import fmean

from naive_speculate.events import Event, EventKind
from naive_speculate.tools.ratio import LEVEL, Estimate, lies_above, ratio_of
from naive_speculate.tools.show.speedup import step_seconds
from ui.experiments.sweep import Progress, in_order, ks_in_words, way_name
from ui.host.catalog import Catalog
from ui.host.zero import zero_gpu
from ui.labels import count
from ui.run.settings import Settings

SIZES = (1, 2, 4, 8, 16)
REPEATS = 4


@dataclass(frozen=True, slots=True)
class BatchSample:
    size: int  # texts decoded together
    k: int  # draft tokens per step; 0 is plain decoding
    turn: int  # the repetition, from 0; each has its own texts
    tokens_per_second: float  # of all texts together, while all were being decoded


def sweep_batches(
    catalog: Catalog,
    settings: Settings,
    prompts: Sequence[str],
    ks: Sequence[int],
    sizes: Sequence[int],
    turns: int = REPEATS,
) -> Iterator[Progress[BatchSample]]:
    """Decode batches of every size plainly and with every k; then repeat all of it with other
    texts."""
    chosen = replace(settings, auto=False, ignore_eos=True)  # equal lengths keep the batch full

    def name(batch: tuple[int, int, int]) -> str:
        _, size, k = batch
        return f"{size} at once, {way_name(k)}"

    def sample_of(batch: tuple[int, int, int]) -> BatchSample | None:
        turn, size, k = batch
        speed = _speed(catalog, replace(chosen, num_draft_tokens=k), prompts, size, turn)
        return BatchSample(size, k, turn, speed) if speed else None

    return in_order(list(product(range(turns), sizes, (0, *ks))), name, sample_of)


def _speed(
    catalog: Catalog, settings: Settings, prompts: Sequence[str], size: int, turn: int
) -> float | None:
    """Tokens per second of a batch; None if its texts were never decoded all together."""
    rows: list[list[tuple[float, Event]]] = [[] for _ in range(size)]
    ends = SimpleQueue[Exception | None]()

    def take(row: list[tuple[float, Event]], delivered: list[Event] | Exception | None) -> None:
        if isinstance(delivered, list):
            now = time.perf_counter()
            row += [(now, event) for event in delivered if event.kind == EventKind.STEP]
        else:
            ends.put(delivered)

    first = (settings.seed or 0) + turn * size
    for number, row in enumerate(rows):
        chosen = replace(
            settings, prompt=prompts[(first + number) % len(prompts)], seed=first + number
        )
        catalog.start(settings.pair, chosen.request("none"), threading.Event(), partial(take, row))
    for _ in rows:
        if error := ends.get():
            raise error
    return full_speed(rows)


def full_speed(rows: Sequence[Sequence[tuple[float, Event]]]) -> float | None:
    """Tokens per second of rows decoded together, from their steps with the time of each end.

    Only steps between the last row's first step, which processes its prompt, and the first row's
    last step count.
    """
    if not all(rows):
        return None
    begin, end = max(row[0][0] for row in rows), min(row[-1][0] for row in rows)
    speeds = []
    for row in rows:
        full = [event for moment, event in row if begin < moment <= end]
        seconds = step_seconds(full)
        if seconds is None:
            return None
        speeds.append(fmean((event.num_accepted or 0) + 1 for event in full) / seconds)
    return sum(speeds)


def batch_log_speedups(samples: Sequence[BatchSample]) -> dict[tuple[int, int], list[float]]:
    """Logarithms of the speedup over plain decoding in the same repetition, by batch size and k."""
    plain = {(s.size, s.turn): s.tokens_per_second for s in samples if s.k == 0}
    logs: dict[tuple[int, int], list[float]] = {}
    for s in samples:
        if s.k and (s.size, s.turn) in plain:
            logs.setdefault((s.size, s.k), []).append(
                math.log(s.tokens_per_second / plain[s.size, s.turn])
            )
    return dict(sorted(logs.items()))


def batch_speedups(samples: Sequence[BatchSample]) -> dict[tuple[float, int], Estimate]:
    """Speedups by batch size and k, as geometric means with intervals."""
    return {key: ratio_of(logs) for key, logs in batch_log_speedups(samples).items()}


def where_it_pays(samples: Sequence[BatchSample]) -> str:
    """From which batch size on drafting does not clearly pay off: no k is faster than plain
    decoding by a one-sided t-test.

    At each size, all tests together raise a false alarm in at most one of twenty cases
    (Bonferroni).
    """
    logs = batch_log_speedups(samples)
    if not logs:
        return "No batch was long enough to compare: allow more tokens per run"
    sizes, ks = (sorted(set(values)) for values in zip(*logs, strict=True))
    least = 1 - (1 - LEVEL) / len(ks)
    paying = {
        size: [k for k in ks if (size, k) in logs and lies_above(logs[size, k], 0.0, least)]
        for size in sizes
    }
    last = max((size for size in sizes if paying[size]), default=None)
    if last is None:
        tried = f"at any size, from {sizes[0]} to" if len(sizes) > 1 else "with"
        return f"Drafting did not clearly pay off {tried} {count(sizes[-1], 'text')} at once"
    verb = "is" if len(paying[last]) == 1 else "are"
    faster = f"k = {ks_in_words(paying[last], ks)} {verb} clearly faster than plain decoding"
    if last == sizes[-1]:
        return (
            f"Drafting still pays off with {count(last, 'text')} at once, the most that were tried:"
            f" {faster}"
        )
    stops, pays = count(sizes[sizes.index(last) + 1], "text"), count(last, "text")
    return f"Drafting does not clearly pay off with {stops} at once or more; with {pays}, {faster}"


def sizes_for(catalog: Catalog, pair: str) -> list[int]:
    """The batch sizes that this host can decode; none if every run has its own process."""
    load = catalog.of(pair).engine.load()
    return (
        [size for size in SIZES if size <= load.capacity]
        if load.replicas == 1 and not zero_gpu()
        else []
    )
