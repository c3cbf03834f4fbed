"""Compares the window "auto" with every fixed window, for each drafter and kind of text.

    python -m benchmarks.auto [--drafters D …] [--situations S …]
                              [--scouts N] [--pairs N] [--most-pairs N] [--new-tokens N] [--out
                              FILE]

First every prompt is decoded with "auto" and with k = 1 … 8 in alternating order, so that other
programs slow all equally. That finds the best fixed window, but the fastest of eight is also
lucky. So "auto" and that window are compared in separate runs with other seeds: --pairs of them,
and up to --most-pairs while the 95% interval reaches further than 4% from the ratio, since sampled
runs differ in their texts. Ratios, of tokens per second, are geometric means over pairs of runs
(`naive_speculate.ratio`). The table is printed last, and saved in `auto.txt` in this folder.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from rich.table import Column, Table

from benchmarks.tables import numbers, show
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.arguments import print_for_people
from naive_speculate.infer.threads import leave_cores_to
from naive_speculate.ratio import logs_of, ratio_of
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.tools.bench.measure import our_way
from ui.host.measuring import machine_name

WINDOWS = range(1, 9)
OUT = Path(__file__).with_suffix(".txt")
WIDTH = 140
PRECISION = 0.04  # of half the 95% interval
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


def measure(
    decoder: SpeculativeDecoder, drafter: str, situation: str, options: argparse.Namespace
) -> list[str]:
    """One row of the table: "auto" ÷ each fixed window; the best of these, and "auto" ÷ it in
    separate pairs of runs."""
    temperature, texts = SITUATIONS[situation]
    prompts = [decoder.admission.encode(text) for text in texts]
    params = SamplingParams(temperature=temperature, max_tokens=options.new_tokens, ignore_eos=True)
    windows: tuple[int | str, ...] = ("auto", *WINDOWS)
    ways = {window: our_way(decoder, window, params, drafter) for window in windows}

    def ratios(windows: Sequence[int], turns: range) -> dict[int, list[float]]:
        """For each window the logarithms of the speeds of "auto" ÷ its own; a turn is a prompt
        and a seed."""
        speeds: dict[int | str, list[float]] = {"auto": []} | {window: [] for window in windows}
        for turn in turns:
            number, at = divmod(turn, len(prompts))
            # The order alternates between turns, and for each prompt between its turns.
            for window in speeds if (turn + number) % 2 == 0 else reversed(speeds):
                speeds[window].append(ways[window].decode(prompts[at], turn).speed)
        return {window: logs_of(speeds["auto"], speeds[window]) for window in windows}

    ratios(WINDOWS, range(1))  # warm-up
    scouted = ratios(WINDOWS, range(options.scouts))
    best = min(WINDOWS, key=lambda window: sum(scouted[window]))
    compared: list[float] = []
    while not compared or (len(compared) < options.most_pairs and error(compared) > PRECISION):
        turn, more = (
            options.scouts + len(compared),
            min(options.pairs, options.most_pairs - len(compared)),
        )
        compared += ratios([best], range(turn, turn + more))[best]
    found = (
        *(ratio_of(scouted[window]).mean for window in WINDOWS),
        best,
        ratio_of(compared).mean,
        error(compared),
        len(compared),
    )
    return [
        situation,
        drafter,
        *(str(figure) if isinstance(figure, int) else f"{figure:.2f}" for figure in found),
    ]


def error(logs: Sequence[float]) -> float:
    """How far the 95% interval reaches above the ratio, relative to it."""
    ratio, _, high = ratio_of(logs, least=2)
    return (high or math.inf) / ratio - 1


def main(argv: Sequence[str] | None = None) -> int:
    print_for_people()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scouts",
        type=int,
        default=12,
        help="runs of each window, to find the best (default %(default)s)",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=24,
        help="of “auto” and the best, at least (default %(default)s)",
    )
    parser.add_argument(
        "--most-pairs",
        type=int,
        default=96,
        help="while the interval reaches over 4%% (default %(default)s)",
    )
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument(
        "--drafters", nargs="+", choices=DRAFTERS, help="default: all that the pair has"
    )
    parser.add_argument("--situations", nargs="+", choices=SITUATIONS, default=list(SITUATIONS))
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(argv)
    if min(options.scouts, options.new_tokens) < 1 or not 2 <= options.pairs <= options.most_pairs:
        parser.error("--scouts and --new-tokens must be at least 1, --pairs from 2 to --most-pairs")
    pair = load_pair()
    leave_cores_to(pair.target)
    decoder = SpeculativeDecoder(pair)
    table = Table(
        Column(no_wrap=True),
        Column("drafter", no_wrap=True),
        *numbers(*(f"k = {k}" for k in WINDOWS), "best k", "÷ best", "±", "pairs"),
        title=(
            f"“auto” ÷ a fixed window, speeds: geometric means of {options.scouts} pairs of runs;"
            " ÷ best: of others, see right"
        ),
        caption=f"{machine_name('cpu')}, {date.today():%d %B %Y}",
    )
    for drafter in options.drafters or [
        name for name, kind in DRAFTERS.items() if kind.obstacle(pair) is None
    ]:
        for situation in options.situations:
            table.add_row(*(cells := measure(decoder, drafter, situation, options)))
            print(" ".join(cells), file=sys.stderr, flush=True)
    show([table], WIDTH, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
