"""SmolLM2-135M-Instruct computed by this decoder, by llama.cpp's kernels and by transformers, in one run.

    python -m benchmarks.smollm2 spec-bench-72.jsonl [--limit 2] [--new-tokens 96] [--threads 2]

Questions by category in Spec-Bench's format, chat template, greedy, end tokens ignored, prompt included. Every question is
decoded every way, in an order that rotates; a ratio is the median over the questions. llama.cpp computes through
llama-cpp-python (`make test-gguf` installs it), one call per forward, from GGUF files that are written first: float32, Q8_0 and
Q4_1. All but Q8_0 hold the same weights.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.table import Table

from benchmarks.tables import numbers, output
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.bench.suite import encode, read_suite
from naive_speculate.bench.ways import Run, Transformers, our_way
from naive_speculate.infer.gguf.export import export
from naive_speculate.infer.threads import THREADS_VARIABLE, leave_cores_to
from ui.host.measuring import machine_name

Decode = Callable[[list[int]], Run]
OURS = "ours, float32, plain"
FILES = {"float32": "float32", "Q8_0": "q8_0", "Q4_1": "q4_1"}


class Ways:
    """All ways to decode.

    Args:
        folder: Where GGUF files are written.
        options: The command line.
    """

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.params = SamplingParams(temperature=0, max_tokens=options.new_tokens, ignore_eos=True)
        self.decoder = SpeculativeDecoder(load_pair("smollm2", device="cpu"))
        leave_cores_to(self.decoder.pair.target)
        model: Any = load_pair("smollm2", device="cpu", dtype="float32", executor="transformers").target
        self.found = self._ours("ours, float32", self.decoder, {"suffix": "auto", "suffix+head": "auto"})
        for name, dtype in FILES.items():
            path = folder / f"{name}.gguf"
            export(model.model, None, path, dtype)  # prompts are token numbers
            there = SpeculativeDecoder(load_pair(path, device="cpu"))
            self.found |= self._ours(f"llama.cpp, {name}", there, {"suffix": 5} if name == "Q8_0" else {})
        peer = Transformers(model.model, model.model, options.new_tokens)
        peer.threads = options.threads
        self.found["transformers, plain"] = lambda prompt: peer.way(0, 0.0).decode(prompt, 0)
        self.found["transformers, prompt lookup"] = lambda prompt: peer.way(10, 0.0, lookup=True).decode(prompt, 0)

    def _ours(self, name: str, decoder: SpeculativeDecoder, drafters: dict[str, Any]) -> dict[str, Decode]:
        ways = {f"{name}, plain": our_way(decoder, 0, self.params)}
        ways |= {f"{name}, {drafter}": our_way(decoder, k, self.params, drafter) for drafter, k in drafters.items()}
        return {label: lambda prompt, way=way: way.decode(prompt, 0) for label, way in ways.items()}  # type: ignore[misc]


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path, help="questions in Spec-Bench's format")
    parser.add_argument("--limit", type=int, default=2, help="questions per category (default: %(default)s)")
    parser.add_argument("--new-tokens", type=int, default=96, help="tokens per answer (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of all (default: %(default)s)")
    options = parser.parse_args()
    os.environ[THREADS_VARIABLE] = str(options.threads)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        ways = Ways(Path(folder), options)
        prompts = encode(ways.decoder, options.suite, read_suite(options.suite, options.limit))
        runs: dict[str, list[Run]] = {name: [] for name in ways.found}
        for number, prompt in enumerate([prompts[0], *prompts]):  # the first is a warm-up
            names = list(runs)[number % len(runs) :] + list(runs)[: number % len(runs)]
            for name in names:
                run = ways.found[name](prompt)
                print(f"question {number} of {len(prompts)}: {name} {len(run.token_ids) / run.seconds:.0f}", file=sys.stderr)
                if number:
                    runs[name].append(run)
    output(100).print(table(runs, options))
    return 0


def table(runs: dict[str, list[Run]], options: argparse.Namespace) -> Table:
    """Speeds, ratios to our plain decoding, tokens per target pass, and whether the texts are equal."""
    caption = f"{machine_name('cpu')}, {options.threads} threads, {len(runs[OURS])} questions, {date.today():%d %B %Y}"
    headings = numbers("tokens/s", "÷ ours, plain", "tokens/pass", "texts equal")
    found = Table("", *headings, title="SmolLM2-135M-Instruct, greedy, prompt included", caption=caption)
    for name, own in runs.items():
        speeds = [len(run.token_ids) / run.seconds for run in own]
        ratios = [speed * run.seconds / len(run.token_ids) for speed, run in zip(speeds, runs[OURS], strict=True)]
        passes = sum(len(run.token_ids) for run in own) / max(1, sum(run.target_forwards for run in own))
        equal = sum(run.token_ids == other.token_ids for run, other in zip(own, runs[OURS], strict=True))
        found.add_row(name, f"{median(speeds):.0f}", f"{median(ratios):.2f}", f"{passes:.2f}", f"{equal} of {len(own)}")
    return found


if __name__ == "__main__":
    sys.exit(main())
