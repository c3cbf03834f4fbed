"""Compares the window "auto" with every fixed window, for each drafter and kind of text.

    python benchmarks/auto.py [--quick] [--drafters D …] [--situations S …]
                              [--scouts N] [--pairs N] [--most-pairs N] [--new-tokens N] [--out FILE]

First every prompt is decoded with "auto" and with k = 1 … 8 in alternating order, so that other programs slow all equally. That
finds the best fixed window, but the fastest of eight is also lucky. So "auto" and that window are compared in separate runs
with other seeds: --pairs of them, and up to --most-pairs while the standard error (by bootstrap) exceeds 2%, since sampled runs
differ in their texts. Ratios are medians over pairs of runs, of wall time per token. The table is printed last, and saved in
`auto.txt` in this folder.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Column, Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.tables import numbers, output  # noqa: E402
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair  # noqa: E402
from naive_speculate.infer.threads import leave_cores_to  # noqa: E402
from naive_speculate.speculate.draft import DRAFTERS  # noqa: E402
from ui.host.measuring import machine_name  # noqa: E402

WINDOWS = tuple(range(1, 9))
OUT = Path(__file__).with_suffix(".txt")
WIDTH = 140
PRECISION = 0.02
STORIES = (  # several of each kind, since a single text may suit some window by chance
    "Once upon a time there was a king who had three sons, and",
    "The old woman looked out of the window and saw",
    "In the middle of the forest stood a little house, where",
    "When the fox heard this, he laughed and said to the crow,",
    "The captain came on deck early in the morning and",
    "Anna had lost her blue ball in the garden, so she",
    "It was a dark night, and the wind",
    "A miller had a donkey that",
)
LISTS = (
    "1. apples\n2. pears\n3. plums\n4.",
    "Monday, Tuesday, Wednesday, Thursday,",
    "- a red hat\n- a green coat\n- a blue",
    "one, two, three, four, five,",
    "bread, butter, milk, eggs, cheese, and",
    "Spring is green. Summer is gold. Autumn is brown.",
    "A is for apple.\nB is for bear.\nC is for",
    "one cat and one dog, two cats and two dogs, three",
)
ODD = (
    "zx9 qq## 14:7 SELECT * FROM void;; the the",
    "@@@ 0x7f 0x80 üß ~~ {[",
    "def f(x):\n    return x +",
    "THE THE the 11 22 33 ?!?!",
    "<html><body><p class=x>",
    "E = m c ^ 2 ; F = m a ;",
    "lorem ipsum dolor sit amet",
    "--- 17:03:22 ERROR 404",
)
SITUATIONS: dict[str, tuple[float, tuple[str, ...]]] = {
    "greedy": (0.0, STORIES),
    "T = 0.8": (0.8, STORIES),
    "T = 1.3": (1.3, STORIES),
    "a list": (0.0, LISTS),
    "an odd prompt": (0.8, ODD),
}


@dataclass(frozen=True)
class Row:
    """One drafter on one kind of text.

    Attributes:
        ratios: "auto" ÷ each fixed window: medians over pairs of runs.
        best: The fixed window with the least total time.
        ratio: "auto" ÷ that window, in separate pairs of runs.
        error: Its standard error.
        num_pairs: Number of these pairs.
    """

    situation: str
    drafter: str
    ratios: dict[int, float]
    best: int
    ratio: float
    error: float
    num_pairs: int


class Runs:
    """Runs of a drafter on one kind of text."""

    def __init__(self, decoder: SpeculativeDecoder, situation: str, drafter: str, new_tokens: int) -> None:
        self.decoder, self.situation, self.drafter, self.new_tokens = decoder, situation, drafter, new_tokens
        self.temperature, self.prompts = SITUATIONS[situation]

    def seconds(self, window: int | str, turn: int, new_tokens: int | None = None) -> float:
        """Seconds of a run; `turn` determines its prompt and, for a fixed window, its seed: with one, "auto" learns nothing."""
        seed, tokens = None if window == "auto" else turn, new_tokens or self.new_tokens
        params = SamplingParams(temperature=self.temperature, max_tokens=tokens, seed=seed, ignore_eos=True)
        prompt, began = self.prompts[turn % len(self.prompts)], time.perf_counter()
        self.decoder.generate(prompt, params, num_draft_tokens=window, drafter=self.drafter, detail="none")
        return time.perf_counter() - began

    def in_turn(self, ways: Sequence[int | str], turns: range) -> dict[int | str, list[float]]:
        """The seconds of each way's runs."""
        found: dict[int | str, list[float]] = {way: [] for way in ways}
        for turn in turns:
            # The order alternates between turns, and for each prompt between its turns.
            for way in ways if (turn + turn // len(self.prompts)) % 2 == 0 else reversed(ways):
                found[way].append(self.seconds(way, turn))
        return found


def measure(runs: Runs, scouts: int, pairs: int, most_pairs: int) -> Row:
    """One row of the table."""
    ways: list[int | str] = ["auto", *WINDOWS]
    for way in ways:
        runs.seconds(way, 0, 16)  # warm-up
    first = runs.in_turn(ways, range(scouts))
    best = min(WINDOWS, key=lambda k: sum(first[k]))
    ratios: list[float] = []
    while not ratios or (len(ratios) < most_pairs and _error(ratios) > PRECISION):
        turn, more = scouts + len(ratios), min(pairs, most_pairs - len(ratios))
        ratios += _ratios(runs.in_turn(["auto", best], range(turn, turn + more)), best)
    found = {k: median(_ratios(first, k)) for k in WINDOWS}
    return Row(runs.situation, runs.drafter, found, best, median(ratios), _error(ratios), len(ratios))


def _ratios(seconds: Mapping[int | str, Sequence[float]], window: int) -> list[float]:
    """Speed of “auto” ÷ speed of a window, per pair."""
    return [other / auto for auto, other in zip(seconds["auto"], seconds[window], strict=True)]


def _error(ratios: Sequence[float]) -> float:
    """The standard error of the median."""
    drawn = np.random.default_rng(0).choice(ratios, (1000, len(ratios)))
    return float(np.median(drawn, axis=1).std())


def show(rows: Sequence[Row], scouts: int, console: Console) -> None:
    """Print the table."""
    table = Table(
        Column(no_wrap=True),
        Column("drafter", no_wrap=True),
        *numbers(*(f"k = {k}" for k in WINDOWS), "best k", "÷ best", "±", "pairs"),
        title=f"“auto” ÷ a fixed window, speeds: medians of {scouts} pairs of runs; ÷ best: of others, see right",
        caption=f"{machine_name('cpu')}, {date.today():%d %B %Y}",
    )
    for row in rows:
        table.add_row(
            row.situation, row.drafter, *(f"{row.ratios[k]:.2f}" for k in WINDOWS),
            str(row.best), f"{row.ratio:.2f}", f"{row.error:.2f}", str(row.num_pairs),
        )  # fmt: skip
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four runs of 48 tokens of each, and four pairs")
    parser.add_argument("--scouts", type=int, default=12, help="runs of each window, to find the best (default %(default)s)")
    parser.add_argument("--pairs", type=int, default=24, help="of “auto” and the best, at least (default %(default)s)")
    parser.add_argument("--most-pairs", type=int, default=96, help="while the error is over 2%% (default %(default)s)")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--drafters", nargs="+", choices=DRAFTERS, help="default: all that the pair has")
    parser.add_argument("--situations", nargs="+", choices=SITUATIONS, default=list(SITUATIONS))
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(argv)
    scouts, pairs, most_pairs, new_tokens = options.scouts, options.pairs, options.most_pairs, options.new_tokens
    if options.quick:
        scouts, pairs, most_pairs, new_tokens = 4, 4, 4, 48
    if min(scouts, new_tokens) < 1 or not 2 <= pairs <= most_pairs:
        parser.error("--scouts and --new-tokens must be at least 1, --pairs from 2 to --most-pairs")
    pair = load_pair()
    leave_cores_to(pair.target)
    decoder = SpeculativeDecoder(pair)
    drafters = options.drafters or [name for name, kind in DRAFTERS.items() if kind.obstacle(pair) is None]
    rows = []
    for drafter in drafters:
        for situation in options.situations:
            rows.append(row := measure(Runs(decoder, situation, drafter, new_tokens), scouts, pairs, most_pairs))
            line = f"{row.ratio:.2f} ± {row.error:.2f} of k = {row.best}, {row.num_pairs} pairs"
            print(f"{drafter}, {situation}: {line}", file=sys.stderr, flush=True)
    with options.out.open("w", encoding="utf-8") as file:
        show(rows, scouts, Console(file=file, width=WIDTH))
    show(rows, scouts, output(WIDTH))
    return 0


if __name__ == "__main__":
    sys.exit(main())
