"""SmolLM2 in float32, 8 and 4 bits: what rounding the weights gives, and what drafts add to it.

    python -m benchmarks.low_bits [--new-tokens 128] [--rounds 20]

The forms take turns, so that a busy machine slows all alike. Prints the milliseconds of a target
pass by its number of tokens; the largest difference between the logits of nine tokens computed in
one pass and in nine; tokens per second, after the prompt, of plain decoding and of `suffix+head`;
and how many greedy texts of both are the same. 4 bits only if this processor computes them alike
alone and among others.
"""

import argparse
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from rich.table import Column, Table

from benchmarks.tables import numbers, output
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.infer.llama.kernels import row_difference
from naive_speculate.infer.load import WEIGHTS
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.infer.threads import leave_cores_to
from naive_speculate.tools.bench.measure import forward_timer, our_way

COUNTS, CONTEXT = (1, 2, 4, 6, 9), 64
QUESTIONS = (
    "Explain gravity to a child.",
    "Write a Python function that reverses a list.",
    "Write a story about a fox.",
    "List five fruits.",
    "What is the capital of France?",
    "Why is the sky blue?",
)


def difference(model: Any) -> float:
    """The largest difference between the logits of nine tokens, in one pass and in nine."""
    ids, most = torch.arange(1000, 1000 + CONTEXT + max(COUNTS))[None], max(COUNTS)
    together, apart = model.new_cache(1), model.new_cache(1)
    for cache in (together, apart):
        model.forward(ids[:, :CONTEXT], cache)
    singles = [model.forward(ids[:, at : at + 1], apart) for at in range(CONTEXT, CONTEXT + most)]
    return float((model.forward(ids[:, CONTEXT:], together) - torch.cat(singles, 1)).abs().max())


def passes(pairs: dict[str, Any], rounds: int) -> dict[str, list[str]]:
    """Median milliseconds of a pass over each number of tokens."""
    found: dict[str, list[str]] = {name: [] for name in pairs}
    for count in COUNTS:
        timers: dict[str, Callable[[], float]] = {
            name: forward_timer(as_batch_model(pair.target), CONTEXT, count)
            for name, pair in pairs.items()
        }
        times = [{name: run() for name, run in timers.items()} for _ in range(rounds)]
        for name in pairs:
            found[name].append(f"{1e3 * median(each[name] for each in times):.1f}")
    return found


def decoding(pairs: dict[str, Any], new_tokens: int) -> dict[str, list[str]]:
    """Tokens per second of plain decoding and with drafts, and the number of same texts."""
    params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
    decoders = {name: SpeculativeDecoder(pair) for name, pair in pairs.items()}
    ways: dict[tuple[str, Any], Any] = {
        (name, k): our_way(decoder, k, params, "suffix+head", chat=True)
        for name, decoder in decoders.items()
        for k in (0, "auto")
    }
    runs: dict[tuple[str, Any], list[Any]] = {key: [] for key in ways}
    for question in (QUESTIONS[0], *QUESTIONS):  # the first one warms up
        for key, way in ways.items():
            runs[key].append(way.decode(question, 0))
    found = {}
    for name in pairs:
        plain, drafted = runs[name, 0][1:], runs[name, "auto"][1:]
        same = sum(a.token_ids == b.token_ids for a, b in zip(plain, drafted, strict=True))
        speeds = [f"{median(run.decoding_speed for run in each):.0f}" for each in (plain, drafted)]
        found[name] = [*speeds, f"{same} of {len(plain)}"]
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    names = [name for name, bits in WEIGHTS.items() if bits != 4 or not row_difference(bits)]
    pairs = {name: load_pair("smollm2", device="cpu", weights=name) for name in names}
    leave_cores_to(next(iter(pairs.values())).target)
    headings = [*(f"{count} tokens" for count in COUNTS), "logits differ by"]
    headings += ["plain, tokens/s", "suffix+head", "same texts"]
    table = Table(Column(no_wrap=True), *numbers(*headings), title="A pass, ms, and decoding")
    times, speeds = passes(pairs, options.rounds), decoding(pairs, options.new_tokens)
    for name, pair in pairs.items():
        table.add_row(name, *times[name], f"{difference(pair.target):.2g}", *speeds[name])
    output(140).print(table)


if __name__ == "__main__":
    main()
