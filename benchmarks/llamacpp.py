"""Compares this decoder with llama.cpp and transformers, on the same weights with the same number of threads.

    python benchmarks/llamacpp.py FOLDER [--target M --draft M --head M] [--threads N] [--quick] [--out FILE]

FOLDER holds llama.cpp's programs `llama-bench` and `llama-speculative-simple`. The pair is written as GGUF, in float32, which
this decoder computes, and in half precision for separate rows. With the extra `gguf`, this decoder computes those files too
(`load_pair("target.gguf")`). Everything is measured in one run in alternating order, so that other programs slow all equally; a
ratio is the median over the turns. Greedy. The prompt is excluded from this decoder's and llama.cpp's times; transformers'
include it, about 0.5%. A forward computes the logits of its last token.

The limit is how often per second the machine could read all weights: the bandwidth of copying a block of their size, reading
and writing counted, with the same number of threads.

llama.cpp's programs are built from the sources in llama-cpp-python's sdist (`pip download --no-deps --no-binary
llama-cpp-python llama-cpp-python`, unpack), in `vendor/llama.cpp`:

    cmake -B build -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF
    cmake --build build -j --target llama-bench llama-speculative-simple        # build/bin is FOLDER
"""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Column, Table
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.tables import output  # noqa: E402
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair  # noqa: E402
from naive_speculate.bench.command import PROMPTS  # noqa: E402
from naive_speculate.bench.ways import Transformers, our_way  # noqa: E402
from naive_speculate.events.metrics import Metrics  # noqa: E402
from naive_speculate.infer.gguf.export import export  # noqa: E402
from naive_speculate.infer.threads import THREADS_VARIABLE, leave_cores_to, num_threads  # noqa: E402
from naive_speculate.models import BUNDLED_PAIR, wrap  # noqa: E402
from ui.host.measuring import machine_name  # noqa: E402

BENCH, SPECULATIVE = "llama-bench", "llama-speculative-simple"
FORWARDS = (1, 5, 9)
CONTEXT = 64
_FORWARD_REPEATS = 20
_ATTEMPTS = 3  # a separate thread writes its log, which sometimes lacks the last lines
_DECODED = re.compile(r"decoded +(\d+) tokens in +([\d.]+) seconds")
WIDTH = 120

Measure = Callable[[int], float]
"""Tokens per second in the turn of this number."""


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp's programs in a folder, with a number of threads."""

    folder: Path
    threads: int

    def plain(self, model: Path, new_tokens: int) -> Measure:
        """Plain decoding, measured by `llama-bench`."""
        return lambda turn: float(self._bench(model, "-p", "0", "-n", str(new_tokens), "-r", "1")[0]["avg_ts"])

    def speculative(self, target: Path, draft: Path, window: int, prompts: Sequence[str], new_tokens: int) -> Measure:
        """Greedy speculative decoding with a window."""
        options: dict[str, object] = {"-m": target, "-md": draft, "--spec-type": "draft-simple", "--spec-draft-n-max": window}
        options |= {"-c": 1024, "-n": new_tokens, "--temp": 0, "-t": self.threads, "-td": self.threads, "-ngl": 0, "-ngld": 0}
        given = [part for option in options.items() for part in option]

        def measure(turn: int) -> float:
            for _ in range(_ATTEMPTS):
                printed = self._run(SPECULATIVE, *given, "--ignore-eos", "-p", prompts[turn % len(prompts)])
                if found := _DECODED.search(printed):
                    return int(found[1]) / float(found[2])
            raise ValueError(f"{SPECULATIVE} printed no speed: {printed[-300:]!r}")

        return measure

    def forwards(self, model: Path) -> list[float]:
        """Milliseconds of forwards over `FORWARDS` tokens after `CONTEXT` others: medians."""
        counts = ",".join(map(str, FORWARDS))
        rows = self._bench(model, "-p", counts, "-n", "0", "-d", str(CONTEXT), "-r", str(_FORWARD_REPEATS))
        by_count = {row["n_prompt"]: median(row["samples_ns"]) / 1e6 for row in rows}
        return [by_count[count] for count in FORWARDS]

    def _bench(self, model: Path, *options: str) -> list[dict[str, Any]]:
        printed = self._run(BENCH, "-m", model, "-t", self.threads, "-ngl", 0, "-o", "json", *options)
        return list(json.loads(printed[printed.index("[") : printed.rindex("]") + 1]))

    def _run(self, program: str, *options: object) -> str:
        done = subprocess.run(
            [str(self.folder / program), *map(str, options)], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            raise ValueError(f"{program} ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout if program == BENCH else done.stdout + done.stderr


def prompt_seconds(metrics: Metrics | None) -> float:
    """Seconds of a run of this decoder before its first step, estimated from the first token; 0 for transformers'."""
    if metrics is None or metrics.time_to_first_token is None:
        return 0.0
    return metrics.time_to_first_token - (metrics.draft_seconds + metrics.verify_seconds) / metrics.num_spec_steps


def our_forwards(model: Any) -> list[float]:
    """As `LlamaCpp.forwards`, for one of our models."""
    tokens = torch.arange(CONTEXT + max(FORWARDS))[None] % model.vocab_size
    cache = model.new_cache(1)
    model.forward(tokens[:, :CONTEXT], cache, num_logits=1)
    found: list[list[float]] = [[] for _ in FORWARDS]
    for turn in range(_FORWARD_REPEATS + 2):
        for count, ms in zip(FORWARDS, found, strict=True):
            query = tokens[:, CONTEXT : CONTEXT + count]
            began = time.perf_counter()
            model.forward(query, cache, num_logits=1)
            took = (time.perf_counter() - began) * 1e3
            cache.crop(count)
            if turn >= 2:
                ms.append(took)
    return [median(ms) for ms in found]


def copies_a_second(num_bytes: int, threads: int) -> float:
    """Reads per second of a block of this size, if a copy reads half of its time."""
    source, before = torch.ones(num_bytes // 4), torch.get_num_threads()
    target = torch.empty_like(source)
    torch.set_num_threads(threads)
    seconds = []
    for _ in range(_FORWARD_REPEATS):
        began = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - began)
    torch.set_num_threads(before)
    return 2 / median(seconds)


def on_gguf(target: Path, draft: Path) -> SpeculativeDecoder | None:
    """This decoder with llama.cpp's kernels; None without the extra `gguf`."""
    if importlib.util.find_spec("llama_cpp") is None:
        return None
    return SpeculativeDecoder(load_pair(target, draft, device="cpu"))


def random_llama(shape: str, like: Any, vocab_size: int) -> LlamaForCausalLM:
    """A random Llama of "LAYERSxWIDTH", with heads of 64 and Llama's feed-forward ratio."""
    layers, width = map(int, shape.split("x"))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=-(-8 * width // 3 // 32) * 32,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=like.bos_token_id,
        eos_token_id=like.eos_token_id,
    )
    return LlamaForCausalLM(config).eval()


def weight_bytes(model: Any) -> int:
    """Bytes that a forward reads: all weights once, without a separate embedding table."""
    table = model.get_input_embeddings().weight
    total = sum(parameter.numel() for parameter in model.parameters())
    return 4 * (total if model.config.tie_word_embeddings else total - table.numel())


def in_turn(ways: dict[str, Measure], turns: int, tick: Callable[[str], None]) -> dict[str, list[float]]:
    """Every way once per turn, in alternating order; the first turn is a warm-up."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-1, turns):
        for name in ways if turn % 2 == 0 else reversed(ways):
            rate = ways[name](max(0, turn))
            tick(f"turn {turn + 1} of {turns}: {name} {rate:.0f}")
            if turn >= 0:
                rates[name].append(rate)
    return rates


def ratio(rates: dict[str, list[float]], one: str, other: str) -> float:
    """Median over the turns of one way's speed ÷ the other's."""
    return median(a / b for a, b in zip(rates[one], rates[other], strict=True))


def best(rates: dict[str, list[float]], names: Sequence[str]) -> str:
    """The way with the largest median."""
    return max(names, key=lambda name: median(rates[name]))


def columns(*headings: str) -> list[Column]:
    """A column for names, and columns of numbers."""
    return [Column(no_wrap=True), *(Column(heading, justify="right", no_wrap=True) for heading in headings)]


def decoding_table(rates: dict[str, list[float]], peers: dict[str, str], limit: float, caption: str) -> Table:
    """Speeds, and the ratio to the way of llama.cpp that each is compared with."""
    table = Table(*columns("median", "from", "to", "÷ llama.cpp"), title="Greedy decoding, tokens per second", caption=caption)
    for name, found in rates.items():
        relative = f"{ratio(rates, name, peers[name]):.2f}" if name in peers else ""
        table.add_row(name, f"{median(found):.0f}", f"{min(found):.0f}", f"{max(found):.0f}", relative)
    table.add_row("limit of plain decoding, float32", f"{limit:.0f}", "", "", "")
    return table


def forward_table(found: dict[str, list[tuple[list[float], list[float], float]]]) -> Table:
    """Milliseconds of forwards, and the median over turns of llama.cpp's ÷ ours."""
    headings = columns("tokens", "ours", "llama.cpp", "our speed ÷ llama.cpp's", "limit")
    table = Table(*headings, title=f"A forward of the target after {CONTEXT} tokens, ms")
    for name, turns in found.items():
        for index, count in enumerate(FORWARDS):
            ours, theirs = [turn[0][index] for turn in turns], [turn[1][index] for turn in turns]
            speed = median(b / a for a, b in zip(ours, theirs, strict=True))
            limit = median(turn[2] for turn in turns)
            table.add_row(name, str(count), f"{median(ours):.2f}", f"{median(theirs):.2f}", f"{speed:.2f}", f"{limit:.2f}")
    return table


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of llama.cpp's programs")
    parser.add_argument("--target", default=str(BUNDLED_PAIR / "target"), help="a local folder (default: the bundled pair's)")
    parser.add_argument("--draft", default=str(BUNDLED_PAIR / "draft"))
    parser.add_argument("--head", help="a draft head for separate rows (default: the bundled one, for the bundled target)")
    parser.add_argument("--threads", type=int, default=num_threads(), help="threads of all programs (default: %(default)s)")
    parser.add_argument("--windows", type=int, nargs="+", default=[2, 3, 4, 5, 6, 8])
    parser.add_argument("--shapes", nargs="*", default=["12x512"], help="more targets for the forwards (default: 12x512)")
    parser.add_argument("--new-tokens", type=int, default=200)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="three turns of 100 tokens with k = 4 and 5")
    parser.add_argument("--out", type=Path, help="also save the tables in this file")
    options = parser.parse_args(argv)
    if options.head is None and Path(options.target) == BUNDLED_PAIR / "target":
        options.head = str(BUNDLED_PAIR / "head")
    if options.quick:
        options.turns, options.new_tokens, options.windows = 3, 100, [4, 5]
    missing = [name for name in (BENCH, SPECULATIVE) if not (options.folder / name).is_file()]
    if missing:
        parser.error(f"{options.folder} has no {' and no '.join(missing)}")
    os.environ[THREADS_VARIABLE] = str(options.threads)
    try:
        with tempfile.TemporaryDirectory() as folder:
            tables = Comparison(options, Path(folder)).tables()
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    output(WIDTH).print(*tables)
    if options.out:
        with options.out.open("w", encoding="utf-8") as file:
            Console(file=file, width=WIDTH).print(*tables)
    return 0


def tick(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


class Comparison:
    """All models of a comparison, and their measurements.

    Args:
        options: The command line.
        folder: A temporary folder for GGUF files.
    """

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.engine = LlamaCpp(options.folder, options.threads)
        self.pair = load_pair(options.target, options.draft, options.head, device="cpu", dtype="float32")
        sources: Any = load_pair(options.target, options.draft, device="cpu", dtype="float32", executor="transformers")
        self.target, self.draft = sources.target.model, sources.draft.model
        self.decoder = SpeculativeDecoder(self.pair)
        self.prompts = list(PROMPTS)
        self.ids = [self.decoder.admission.encode(prompt) for prompt in self.prompts]
        self.peer = Transformers(self.target, self.draft, options.new_tokens)
        self.peer.choose_threads(self.ids[0], sorted({1, max(1, options.threads - 1), options.threads}))
        leave_cores_to(self.pair.target)
        self.files = {name: folder / f"{name}.gguf" for name in ("target", "draft", "target half", "draft half")}
        for name, path in self.files.items():
            model, dtype = self.target if "target" in name else self.draft, "float16" if "half" in name else "float32"
            export(model, self.pair.tokenizer, path, dtype)

    def tables(self) -> list[Table]:
        """Measure everything; returns the tables."""
        options = self.options
        rates, peers, drafting = self.decode()
        forwards = self.forwards()
        limit = copies_a_second(weight_bytes(self.target), options.threads)
        best_ours, best_peer = best(rates, drafting), peers[drafting[0]]
        slow = best(rates, [name for name in rates if name.startswith("transformers")])
        caption = (
            f"best: {best_ours} ÷ {best_peer} = {ratio(rates, best_ours, best_peer):.2f}, "
            f"÷ {slow} = {ratio(rates, best_ours, slow):.2f}; ours with drafts are compared with {best_peer}\n"
            f"{machine_name('cpu')}, {options.threads} threads (transformers {self.peer.threads}), "
            f"{options.turns} turns of {options.new_tokens} tokens, {date.today():%d %B %Y}"
        )
        return [decoding_table(rates, peers, limit, caption), forward_table(forwards)]

    def decode(self) -> tuple[dict[str, list[float]], dict[str, str], list[str]]:
        """Rates of all ways to decode, the way of llama.cpp that each of ours is compared with, and ours with drafts."""
        options, files, tokens = self.options, self.files, self.options.new_tokens
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        every = (0, *options.windows)
        ours = {k: f"ours, k = {k}" if k else "ours, plain" for k in every}
        theirs = {k: f"llama.cpp, k = {k}" if k else "llama.cpp, plain" for k in every}
        heads = {k: f"ours, draft head, k = {k}" for k in options.windows if options.head}
        halves = {k: f"ours on GGUF, half precision, {f'k = {k}' if k else 'plain'}" for k in (0, options.windows[0])}
        half_peer = "llama.cpp, plain, half precision"
        ways = {name: self.decoding(our_way(self.decoder, k, params)) for k, name in ours.items()}
        ways |= {name: self.decoding(our_way(self.decoder, k, params, drafter="head")) for k, name in heads.items()}
        ways[theirs[0]] = self.engine.plain(files["target"], tokens)
        for k in options.windows:
            ways[theirs[k]] = self.engine.speculative(files["target"], files["draft"], k, self.prompts, tokens)
        ways[half_peer] = self.engine.plain(files["target half"], tokens)
        if (gguf := on_gguf(files["target half"], files["draft half"])) is not None:
            ways |= {name: self.decoding(our_way(gguf, k, params)) for k, name in halves.items()}
        ways |= {way.name: self.decoding(way) for way in (self.peer.way(k, 0.0) for k in every)}
        rates = in_turn(ways, options.turns, tick)
        best_peer = best(rates, [theirs[k] for k in options.windows])
        drafting = [*(ours[k] for k in options.windows), *heads.values()]
        peers = {ours[0]: theirs[0], halves[0]: half_peer} | dict.fromkeys(drafting, best_peer)
        return rates, peers, drafting

    def decoding(self, way: Any) -> Measure:
        """Tokens per second of a way, without the prompt."""

        def measured(turn: int) -> float:
            run = way.decode(self.ids[turn % len(self.ids)], turn)
            return len(run.token_ids) / (run.seconds - prompt_seconds(run.metrics))

        return measured

    def forwards(self) -> dict[str, list[tuple[list[float], list[float], float]]]:
        """Forwards of the target and of random models of the given shapes: ours, llama.cpp's, and the limit, per turn."""
        options = self.options
        models = {Path(options.target).name: (self.target, self.pair.target, self.files["target"])}
        for shape in options.shapes:
            made, path = random_llama(shape, self.target.config, self.target.config.vocab_size), self.folder / f"{shape}.gguf"
            export(made, self.pair.tokenizer, path)
            models[shape] = made, wrap(made), path
        found: dict[str, list[tuple[list[float], list[float], float]]] = {name: [] for name in models}
        for turn in range(options.turns):
            for name, (source, model, path) in models.items():
                limit = 1e3 / copies_a_second(weight_bytes(source), options.threads)
                found[name].append((our_forwards(model), self.engine.forwards(path), limit))
                tick(f"forwards, turn {turn + 1} of {options.turns}: {name}")
        return found


if __name__ == "__main__":
    sys.exit(main())
