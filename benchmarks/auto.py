"""The window "auto" beside every fixed one, for each drafter and kind of text.

    python benchmarks/auto.py [--quick] [--drafters model …] [--pairs N] [--out FILE]

Every prompt is decoded with "auto" and with k = 1 … 8 in turn, in alternating order, so that a busy machine slows all alike; a
ratio is the median over the pairs of runs, of wall time a token. Beside it stands the same ratio in the costs of the table that
"auto" decides by, which no other program's work changes. The table is printed last, and saved in `auto.txt` beside this file.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Column, Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.tables import numbers, output  # noqa: E402
from naive_speculate import EventKind, SamplingParams, SpeculativeDecoder, load_pair  # noqa: E402
from naive_speculate.infer.threads import leave_cores_to  # noqa: E402
from naive_speculate.speculate.draft import DRAFTERS  # noqa: E402
from ui.host.measuring import machine_name  # noqa: E402

WINDOWS = tuple(range(1, 9))
OUT = Path(__file__).with_suffix(".txt")
WIDTH = 130
STORIES = (
    "Once upon a time there was a king who had three sons, and",
    "The old woman looked out of the window and saw",
    "In the middle of the forest stood a little house, where",
    "When the fox heard this, he laughed and said to the crow,",
)
SITUATIONS: dict[str, tuple[float, tuple[str, ...]]] = {
    "greedy": (0.0, STORIES),
    "T = 0.8": (0.8, STORIES),
    "T = 1.3": (1.3, STORIES),
    "a list": (0.0, ("1. apples\n2. pears\n3. plums\n4.", "Monday, Tuesday, Wednesday, Thursday,")),
    "an odd prompt": (0.8, ("zx9 qq## 14:7 SELECT * FROM void;; the the", "@@@ 0x7f 0x80 üß ~~ {[")),
}


@dataclass(frozen=True)
class Row:
    """One drafter on one kind of text.

    Attributes:
        best: The fixed window with the highest median speed, and by cost.
        ratios: "auto" ÷ each fixed window: medians over pairs of runs.
        cost_ratio: "auto" ÷ the window that is best by cost, by cost.
    """

    situation: str
    drafter: str
    best: int
    ratios: dict[int, float]
    best_by_cost: int
    cost_ratio: float


def decode(
    decoder: SpeculativeDecoder, prompt: str, temperature: float, seed: int, window: int | str, drafter: str, new_tokens: int
) -> tuple[float, float]:
    """One run's tokens a second, and its tokens for the cost of a plain step."""
    costs = decoder.pair.costs(drafter)
    params = SamplingParams(temperature=temperature, max_tokens=new_tokens, seed=seed, ignore_eos=True)
    began = time.perf_counter()
    result = decoder.generate(prompt, params, num_draft_tokens=window, drafter=drafter, detail="none")
    seconds = time.perf_counter() - began
    drafted = [event.num_draft or 0 for event in result.trace if event.kind == EventKind.STEP]
    spent = sum(count * costs.draft + (count > 0) * (costs.call or 0.0) + costs.verify_cost(count) for count in drafted)
    return len(result.token_ids) / seconds, len(result.token_ids) / spent


def measure(decoder: SpeculativeDecoder, situation: str, drafter: str, pairs: int, new_tokens: int) -> Row:
    """One row of the table."""
    temperature, prompts = SITUATIONS[situation]
    ways: list[int | str] = ["auto", *WINDOWS]
    speeds: dict[int | str, list[float]] = {way: [] for way in ways}
    costs = dict.fromkeys(ways, 0.0)
    for way in ways:
        decode(decoder, prompts[0], temperature, 0, way, drafter, 16)  # warm-up
    for turn in range(pairs):
        for way in ways if turn % 2 == 0 else reversed(ways):
            speed, by_cost = decode(decoder, prompts[turn % len(prompts)], temperature, turn, way, drafter, new_tokens)
            speeds[way].append(speed)
            costs[way] += 1 / by_cost
    ratios = {k: median(a / b for a, b in zip(speeds["auto"], speeds[k], strict=True)) for k in WINDOWS}
    best = max(WINDOWS, key=lambda k: median(speeds[k]))
    cheapest = min(WINDOWS, key=lambda k: costs[k])
    return Row(situation, drafter, best, ratios, cheapest, costs[cheapest] / costs["auto"])


def show(rows: Sequence[Row], pairs: int, console: Console) -> None:
    """Print the table."""
    table = Table(
        Column(no_wrap=True),
        Column("drafter", no_wrap=True),
        *numbers(*(f"k = {k}" for k in WINDOWS), "best k", "÷ best", "by costs: k", "÷ best"),
        title=f"“auto” ÷ a fixed window, speeds: medians of {pairs} pairs of runs",
        caption=f"{machine_name('cpu')}, {date.today():%d %B %Y}",
    )
    for row in rows:
        table.add_row(
            row.situation, row.drafter, *(f"{row.ratios[k]:.2f}" for k in WINDOWS),
            str(row.best), f"{row.ratios[row.best]:.2f}", str(row.best_by_cost), f"{row.cost_ratio:.2f}",
        )  # fmt: skip
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four pairs of runs of 48 tokens")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--drafters", nargs="+", choices=DRAFTERS, help="default: all that the pair has")
    parser.add_argument("--situations", nargs="+", choices=SITUATIONS, default=list(SITUATIONS))
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(argv)
    pairs, new_tokens = (4, 48) if options.quick else (options.pairs, options.new_tokens)
    if min(pairs, new_tokens) < 1:
        parser.error("--pairs and --new-tokens must be at least 1")
    pair = load_pair()
    leave_cores_to(pair.target)
    decoder = SpeculativeDecoder(pair)
    drafters = options.drafters or [name for name, kind in DRAFTERS.items() if kind.obstacle(pair) is None]
    rows = []
    for drafter in drafters:
        for situation in options.situations:
            rows.append(measure(decoder, situation, drafter, pairs, new_tokens))
            print(f"{drafter}, {situation}: {rows[-1].ratios[rows[-1].best]:.2f}", file=sys.stderr, flush=True)
    with options.out.open("w", encoding="utf-8") as file:
        show(rows, pairs, Console(file=file, width=WIDTH))
    show(rows, pairs, output(WIDTH))
    return 0


if __name__ == "__main__":
    sys.exit(main())
