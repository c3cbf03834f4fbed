"""A sweep over k and the number of texts decoded together: where drafting stops paying.

A pass of the target over one text leaves arithmetic idle, which drafts make use of. Many texts at once use it up themselves.
"""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from naive_speculate.events import Event, EventKind
from ui.experiments.measured import round_seconds
from ui.experiments.spread import LEVEL, Estimate, lies_above, ratio_of
from ui.experiments.sweep import Progress, ks_in_words
from ui.host.catalog import Catalog
from ui.host.zero import zero_gpu
from ui.labels import count
from ui.run.settings import Settings

SIZES = (1, 2, 4, 8, 16)
TURNS = 4


@dataclass(frozen=True, slots=True)
class BatchSample:
    """What one batch measured.

    Attributes:
        size: Texts decoded together.
        k: Drafts a round; 0 is plain decoding.
        turn: Which of the repetitions it was, each with texts of its own.
        tokens_per_second: Of all texts together, while all of them were being decoded.
    """

    size: int
    k: int
    turn: int
    tokens_per_second: float


def sweep_batches(
    catalog: Catalog,
    settings: Settings,
    prompts: Sequence[str],
    ks: Sequence[int],
    sizes: Sequence[int],
    cancel: threading.Event,
    turns: int = TURNS,
) -> Iterator[Progress[BatchSample]]:
    """Decode batches of every size plainly and with every k, one right after the other; then all of it again, with other texts,
    in so many turns.

    Raises:
        ValueError: Names the setting that cannot be.
    """
    order = [(turn, size, k) for turn in range(turns) for size in sizes for k in (0, *ks)]
    samples: list[BatchSample] = []
    chosen = replace(settings, auto=False, ignore_eos=True)  # all texts as long, so that the batch stays full
    for done, (turn, size, k) in enumerate(order):
        yield Progress(list(samples), done, len(order), f"{size} at once, " + (f"k = {k}" if k else "plain"))
        speed = _speed(catalog, replace(chosen, num_draft_tokens=k), prompts, size, turn, cancel)
        if cancel.is_set():
            return
        if speed:
            samples.append(BatchSample(size, k, turn, speed))
    yield Progress(list(samples), len(order), len(order), "")


class _Row:
    """A run of the batch: its rounds, and when each was over."""

    def __init__(self) -> None:
        self.rounds: list[tuple[float, Event]] = []
        self.over = threading.Event()
        self.error: Exception | None = None

    def take(self, said: list[Event] | Exception | None) -> None:
        if isinstance(said, list):
            now = time.perf_counter()
            self.rounds += [(now, event) for event in said if event.kind == EventKind.STEP]
            return
        self.error = said
        self.over.set()


def _speed(
    catalog: Catalog, settings: Settings, prompts: Sequence[str], size: int, turn: int, cancel: threading.Event
) -> float | None:
    """Tokens a second of a batch; None where its texts were never decoded all together."""
    rows = [_Row() for _ in range(size)]
    first = (settings.seed or 0) + turn * size
    for number, row in enumerate(rows):
        chosen = replace(settings, prompt=prompts[(first + number) % len(prompts)], seed=first + number)
        catalog.start(settings.pair, chosen.request("none"), cancel, row.take)
    for row in rows:
        row.over.wait()
        if row.error is not None:
            raise row.error
    return None if cancel.is_set() else full_speed([row.rounds for row in rows])


def full_speed(rows: Sequence[Sequence[tuple[float, Event]]]) -> float | None:
    """Tokens a second of rows decoded together, from their rounds and when each was over.

    Counted are the rounds between the last row's first one, which takes in its prompt, and the first row's last one.
    """
    if not all(rows):
        return None
    begin, end = max(row[0][0] for row in rows), min(row[-1][0] for row in rows)
    speeds = []
    for row in rows:
        full = [event for moment, event in row if begin < moment <= end]
        seconds = round_seconds(full)
        if seconds is None:
            return None
        speeds.append(fmean((event.num_accepted or 0) + 1 for event in full) / seconds)
    return sum(speeds)


def batch_gains(samples: Sequence[BatchSample]) -> dict[tuple[int, int], list[float]]:
    """By batch size and k, the logarithms of the speed as a multiple of plain decoding's in the same turn and size."""
    plain = {(s.size, s.turn): s.tokens_per_second for s in samples if s.k == 0}
    logs: dict[tuple[int, int], list[float]] = {}
    for s in samples:
        if s.k and (s.size, s.turn) in plain:
            logs.setdefault((s.size, s.k), []).append(math.log(s.tokens_per_second / plain[s.size, s.turn]))
    return dict(sorted(logs.items()))


def batch_speedups(samples: Sequence[BatchSample]) -> dict[tuple[int, int], Estimate]:
    """The same as geometric means with their intervals."""
    return {place: ratio_of(logs) for place, logs in batch_gains(samples).items()}


def where_it_pays(samples: Sequence[BatchSample]) -> str:
    """Up to which batch size drafting pays: some k is faster than plain decoding by a one-sided t-test over the turns.

    At each size the tests of all k together give a false alarm in at most one of twenty cases (Bonferroni).
    """
    gains = batch_gains(samples)
    if not gains:
        return "No batch was long enough to be compared: let the runs have more tokens"
    sizes, ks = (sorted(set(places)) for places in zip(*gains, strict=True))
    least = 1 - (1 - LEVEL) / len(ks)
    paying = {size: [k for k in ks if (size, k) in gains and lies_above(gains[size, k], 0.0, least)] for size in sizes}
    stops = next((size for size in sizes if not paying[size]), None)
    if stops is None:
        last = sizes[-1]
        return f"Drafting pays at every size; with {count(last, 'text')} at once, with k = {ks_in_words(paying[last], ks)}"
    if stops == sizes[0]:
        return "No k is seen to be faster than plain decoding" + (f" with {count(stops, 'text')} at once" if stops > 1 else "")
    before = sizes[sizes.index(stops) - 1]
    return (
        f"Drafting pays with up to {count(before, 'text')} at once; with {stops} no k is seen to be faster than plain decoding"
    )


def sizes_for(catalog: Catalog, pair: str) -> list[int]:
    """The batch sizes that this host can decode together; none where every run has a process of its own."""
    load = catalog.of(pair).engine.load()
    return [size for size in SIZES if size <= load.capacity] if load.replicas == 1 and not zero_gpu() else []
