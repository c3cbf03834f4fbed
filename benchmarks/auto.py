"""Compares the window "auto" with every fixed window, for each drafter and kind of text.

    python -m benchmarks.auto [--drafters D …] [--situations S …] [--scouts 12]
                              [--pairs 24] [--most-pairs 96] [--new-tokens 96] [--out FILE]

First every prompt is decoded with "auto" and with k = 1 … 8 in turn, so that other programs slow
all equally. That finds the best fixed window, but the fastest of eight is also lucky. So "auto"
and that window are compared in separate runs with other seeds: --pairs of them, and up to
--most-pairs while the 95% interval reaches further than 4% from the ratio, since sampled runs
differ in their texts. Ratios, of tokens per second, are geometric means over pairs of runs
(`naive_speculate.tools.ratio`). The table is printed last, and saved in `auto.txt` in this folder.
"""

import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Column, Table

from benchmarks.measuring import here, numbers, options_of, run_command, show
from benchmarks.prompts import SITUATIONS
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.models.threads import leave_cores_to
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.tools.bench.measure import in_turn, our_way
from naive_speculate.tools.ratio import logs_of, ratio_of

WINDOWS = range(1, 9)
PRECISION = 0.04  # of half the 95% interval


def measure(
    decoder: SpeculativeDecoder, drafter: str, situation: str, options: Namespace
) -> list[str]:
    """A row: "auto" ÷ each window; the best of these, and "auto" ÷ it in other runs."""
    temperature, texts = SITUATIONS[situation]
    prompts = [decoder.admission.encode(text) for text in texts]
    params = SamplingParams(temperature=temperature, max_tokens=options.new_tokens, ignore_eos=True)

    def ratios(windows: Sequence[int], seeds: range) -> dict[int, list[float]]:
        """For each window the logarithms of the speeds of "auto" ÷ its own."""
        keys: list[int | str] = ["auto", *windows]
        ways = {k: our_way(decoder, k, params, drafter) for k in keys}
        at = len(prompts)  # of two windows, each goes first in every other run of a prompt
        inputs = [(prompts[(seed + seed // at) % at], seed) for seed in seeds]
        tried: Any = {k: lambda task, way=way: way.decode(*task).speed for k, way in ways.items()}
        runs = list(in_turn(tried, inputs))
        return {k: logs_of(*([run[key] for run in runs] for key in ("auto", k))) for k in windows}

    ratios(WINDOWS, range(1))  # warm-up
    scouted = ratios(WINDOWS, range(options.scouts))
    best = min(WINDOWS, key=lambda window: sum(scouted[window]))
    compared: list[float] = []
    while not compared or (len(compared) < options.most_pairs and error(compared) > PRECISION):
        first = options.scouts + len(compared)
        more = min(options.pairs, options.most_pairs - len(compared))
        compared += ratios([best], range(first, first + more))[best]
    means = [ratio_of(scouted[window]).mean for window in WINDOWS]
    cells = [*means, best, ratio_of(compared).mean, error(compared), len(compared)]
    return [situation, drafter, *(f"{c}" if isinstance(c, int) else f"{c:.2f}" for c in cells)]


def error(logs: Sequence[float]) -> float:
    """How far the 95% interval reaches above the ratio, relative to it."""
    ratio, _, high = ratio_of(logs, least=2)
    return (high or math.inf) / ratio - 1


def main() -> None:
    """Measure and print."""
    lists = {"drafters": list(DRAFTERS), "situations": list(SITUATIONS)}
    runs: Any = {"scouts": 12, "pairs": 24, "most_pairs": 96, "new_tokens": 96}
    out = Path(__file__).with_suffix(".txt")
    options = options_of(__doc__, choices=lists, out=out, **lists, **runs)
    if not 2 <= options.pairs <= options.most_pairs:
        raise ValueError(f"--pairs must be from 2 to --most-pairs, got {options.pairs}")
    leave_cores_to((pair := load_pair()).target)
    decoder = SpeculativeDecoder(pair)
    table = Table(
        *(Column(heading, no_wrap=True) for heading in ("", "drafter")),
        *numbers(*(f"k = {k}" for k in WINDOWS), "best k", "÷ best", "±", "pairs"),
        title=(
            f"“auto” ÷ a fixed window, speeds: geometric means of {options.scouts} pairs of runs;"
            " ÷ best: of others, see right"
        ),
        caption=here(),
    )
    for drafter in (name for name in options.drafters if DRAFTERS[name].obstacle(pair) is None):
        for situation in options.situations:
            table.add_row(*(cells := measure(decoder, drafter, situation, options)))
            print(" ".join(cells), file=sys.stderr, flush=True)
    show(table, 140, options.out)


if __name__ == "__main__":
    run_command(main)
