"""Compares this decoder with llama.cpp (prebuilt, the package xllamacpp) on SmolLM2: the same
weights, questions and number of threads.

    python -m benchmarks.llamacpp SUITE [--limit N] [--new-tokens N] [--threads N] [--out FILE]

Every question (JSON lines with "category" and "turns") is decoded every way, greedy and past end
tokens, in turn, after one warm-up; ratios are geometric means of the questions' own. llama.cpp
reads the file in Q4_1, and its values rounded to Q8_0, for which the file in Q4_1 is the draft
model. The best way with drafts of each group is bold.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import torch
from rich.table import Column, Table

from benchmarks.llamacpp_peer import Measure, as_q8_0, peer
from benchmarks.measuring import here, numbers, options_of, run_command, show
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.models.known import KNOWN
from naive_speculate.models.threads import THREADS_VARIABLE, leave_cores_to
from naive_speculate.tools.bench.measure import Way, in_turn, our_way
from naive_speculate.tools.bench.suite import encode, read_suite
from naive_speculate.tools.ratio import logs_of, ratio_of

NGRAMS = ("NGRAM_SIMPLE", "NGRAM_MAP_K", "NGRAM_MOD", "NGRAM_CACHE")


def speed(way: Way, prompt: list[int]) -> float:
    return way.decode(prompt, 0).decoding_speed


def run(options: argparse.Namespace, folder: Path) -> Table:
    """Speeds of all ways."""
    questions = read_suite(options.suite)[: options.limit]
    ways: dict[str, Measure] = {}
    params = SamplingParams(temperature=0.0, max_tokens=options.new_tokens, ignore_eos=True)
    for weights in ("float32", "int8"):
        pair = load_pair("smollm2", device="cpu", weights=weights)
        leave_cores_to(pair.target)
        decoder = SpeculativeDecoder(pair)
        for k, drafter in ((0, "model"), ("auto", "suffix"), ("auto", "suffix+head")):
            way = our_way(decoder, k, params, drafter)
            ways[f"ours {weights}, {way.name}"] = partial(speed, way)
    q4_1, q8_0 = KNOWN["smollm2"].find()[0], folder / "q8_0.gguf"
    as_q8_0(q4_1, q8_0)
    for name, target, kinds in (("Q8_0", q8_0, ("DRAFT_SIMPLE", *NGRAMS)), ("Q4_1", q4_1, NGRAMS)):
        for kind in ("NONE", *kinds):
            said = "plain" if kind == "NONE" else kind.lower().replace("_", "-")
            ways[f"llama.cpp {name}, {said}"] = peer(
                target, kind, q4_1, options.new_tokens, options.threads
            )
    prompts = encode(decoder, options.suite, questions)
    _, *runs = in_turn(ways, [prompts[0], *prompts])
    rates = {name: [run[name] for run in runs] for name in ways}
    table = Table(
        Column(no_wrap=True),
        *numbers("tokens/s", "from", "to", "÷ plain", "95%"),
        title=f"{len(prompts)} questions of {options.new_tokens} tokens, the prompt left out",
        caption=f"{here()}, {options.threads} threads",
    )
    for name, own in rates.items():
        plain, *drafted = (other for other in rates if other.split(",")[0] == name.split(",")[0])
        best = max(drafted, key=lambda other: median(rates[other]))
        ratio, low, high = ratio_of(logs_of(own, rates[plain]))
        row = [f"{number:.0f}" for number in (median(own), min(own), max(own))]
        row += [f"{ratio:.2f}", f"{low:.2f}–{high:.2f}" if low and high else "–"]
        table.add_row(name, *row, style="bold" if best == name else None)
    return table


def main() -> None:
    options = options_of(__doc__, suite=Path, limit=6, new_tokens=96, threads=2, out=None)
    os.environ[THREADS_VARIABLE] = str(options.threads)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        table = run(options, Path(folder))
    show(table, 100, options.out and Path(options.out))


if __name__ == "__main__":
    run_command(main)
