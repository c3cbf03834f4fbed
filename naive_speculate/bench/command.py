"""The command `python -m naive_speculate bench`."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from naive_speculate.arguments import Parser, number, positive, window
from naive_speculate.bench.measure import (
    Line,
    by_batch,
    by_context,
    compare,
    event_overhead,
    fastest_drafter,
    forward_costs,
    memory_mib,
    step_costs,
)
from naive_speculate.bench.report import save_plots, show
from naive_speculate.bench.suite import drafters_of, measure_suite, read_suite
from naive_speculate.bench.suite_report import show_suite, suite_svg
from naive_speculate.bench.ways import Transformers, Way, our_way
from naive_speculate.infer.gguf.metadata import is_gguf
from naive_speculate.infer.threads import THREADS_VARIABLE, computes_beside_torch, num_threads
from naive_speculate.models import BUNDLED_PAIR, load_pair
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.draft import DRAFTERS

PROMPTS = (
    "Once upon a time there was a king who had three sons, and",
    "The old woman looked out of the window and saw",
    "In the middle of the forest stood a little house, where",
    "“I have never seen such a thing in my life,” said the captain,",
    "Early in the morning the children went down to the river to",
    "There was once a poor fisherman who lived with his wife in",
    "When the fox heard this, he laughed and said to the crow,",
    "The wind blew hard that night, and nobody in the village could",
)
STRATEGIES = ("greedy_match", "block_verification", "typical_acceptance")
CONTEXTS, BATCHES = (100, 250, 500, 1000), (1, 2, 4, 8, 16)
MODES = {"greedy": 0.0, "temperature 0.8": 0.8}
_OF_SUITES = ("drafters", "num_draft_tokens", "max_tokens", "temperature", "limit", "threads", "svg")
_OF_PROMPTS = ("prompts", "new_tokens", "max_draft_tokens", "quick", "plots", "write_costs")
_COST_CONTEXT = 100
_INTERRUPTED = 130
_WIDTH = 160  # of tables that go to a file or a pipe
_MIDDLE = 4  # the window of the comparisons that have only one


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="naive_speculate bench", description=__doc__)
    add = parser.add_argument
    add("--target", metavar="M", help="Hub id or local folder; the bundled pair without it")
    add("--draft", metavar="M", help="Hub id or local folder")
    add("--head", metavar="M", help="Hub id or local folder of a draft head (default: the bundled target's, if there is one)")
    add("--device", default="auto", help="auto, cpu, cuda …")
    add("--dtype", default="auto", help="auto, float32, bfloat16 …")
    add("--executor", default="auto", help="auto, onnx, torch or transformers")
    add("--prompts", type=Path, metavar="FILE", help="one prompt a line; eight beginnings of stories without it")
    add("--new-tokens", type=positive, default=96, metavar="N", help="tokens to generate (default 96)")
    add("--max-draft-tokens", type=positive, default=8, metavar="K", help="largest window (default 8)")
    add("--quick", action="store_true", help="only the comparison at greedy, with half the prompts")
    add("--json", action="store_true", help="print the numbers as JSON and nothing else on standard output")
    add("--plots", type=Path, metavar="FOLDER", help="save pictures there")
    add(
        "--write-costs", type=Path, metavar="FILE", help='save what steps cost for num_draft_tokens="auto", and who drafts best'
    )
    add = parser.add_argument_group("questions instead of prompts: plain decoding and drafters, by category").add_argument
    add("--suite", type=Path, metavar="FILE", help='JSON lines with "category" and "turns", as of Spec-Bench')
    add("--drafters", metavar="D,D…", help="which drafters (default: all that the pair has); plain decoding comes with them")
    add("--num-draft-tokens", type=window, default=5, metavar="K", help="draft tokens per step, or auto (default: %(default)s)")
    add("--max-tokens", type=positive, default=128, metavar="N", help="most tokens per answer (default: %(default)s)")
    add("--temperature", type=number, default=0.0, metavar="X", help="0 compares the texts too (default: %(default)s)")
    add("--limit", type=positive, metavar="N", help="questions per category (default: all)")
    add("--threads", type=positive, metavar="N", help="threads that compute (default: as for decoding)")
    add("--svg", type=Path, metavar="FILE", help="save a picture there")
    return parser


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options; those of the other kind of benchmark are refused."""
    parser = _parser()
    options = parser.parse_args(argv)
    others, why = (_OF_SUITES, "needs --suite") if options.suite is None else (_OF_PROMPTS, "does not go with --suite")
    for name in others:
        if getattr(options, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} {why}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    options = _parse(argv)
    console = Console(stderr=True)
    try:
        if options.suite is not None:
            return _bench_suite(options, console)
        with redirect_stdout(sys.stderr):
            report, lines = _run(options, console)
            if options.plots is not None:
                for path in save_plots(report, lines, options.plots):
                    console.print(f"saved {path}")
            if options.write_costs is not None:
                options.write_costs.write_text(json.dumps(report["step_costs"]) + "\n", encoding="utf-8")
    except (ValueError, OSError) as error:
        print(f"naive_speculate bench: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        output = Console()
        show(report, lines, output if output.is_terminal else Console(width=_WIDTH))
    return 0


def _bench_suite(options: argparse.Namespace, console: Console) -> int:
    """Measure the questions of a suite; returns the exit status. Ctrl-C reports the questions so far."""
    questions, drafters = read_suite(options.suite, options.limit), drafters_of(options.drafters)
    if options.svg is not None:
        options.svg.open("a").close()  # where it cannot be written, that is known before hours of work
    if options.threads is not None:
        os.environ[THREADS_VARIABLE] = str(options.threads)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with redirect_stdout(sys.stderr), Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        how = {"device": options.device, "dtype": options.dtype, "executor": options.executor}
        pair = load_pair(options.target, options.draft, options.head, **how)
        threads = num_threads()
        torch.set_num_threads(1 if computes_beside_torch(pair.target) else threads)

        def started(runs: int) -> Callable[[str], None]:
            task = progress.add_task("measuring", total=runs)
            return lambda category: progress.update(task, advance=1, description=category)

        asked = (drafters, options.num_draft_tokens, options.temperature, options.max_tokens)
        report = measure_suite(pair, options.suite, questions, *asked, started)
    on_cpu = report["device"] == "cpu"
    report |= {"machine": platform.machine(), "threads": threads if on_cpu else None}
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        output = Console()
        show_suite(report, output if output.is_terminal else Console(width=_WIDTH))
    if options.svg is not None:
        options.svg.write_text(suite_svg(report), encoding="utf-8")
    if report["interrupted"]:
        print("naive_speculate bench: interrupted", file=sys.stderr)
    return _INTERRUPTED if report["interrupted"] else 0


def _run(options: argparse.Namespace, console: Console) -> tuple[dict[str, Any], dict[str, list[Line]]]:
    for option in ("target", "draft"):
        if (given := getattr(options, option)) is not None and is_gguf(given):
            raise ValueError(f"--{option} {given}: transformers, with which this compares, does not compute GGUF files")
    how = {"device": options.device, "dtype": options.dtype, "executor": options.executor}
    pair = load_pair(options.target, options.draft, options.head, **how)
    if pair.draft is None:
        raise ValueError("a draft model is needed: give --draft")
    decoder = SpeculativeDecoder(pair)
    prompts = [decoder.admission.encode(text) for text in _prompts(options.prompts)]
    if options.quick:
        prompts = prompts[: max(1, len(prompts) // 2)]
    modes = {"greedy": 0.0} if options.quick else MODES
    windows = list(range(1, options.max_draft_tokens + 1))
    middle = min(_MIDDLE, options.max_draft_tokens)
    others = [name for name, kind in DRAFTERS.items() if name != "model" and kind.obstacle(pair) is None]
    target, draft = _load_for_transformers(options)
    peer = Transformers(target, draft, options.new_tokens)
    cores = torch.get_num_threads()
    peer.choose_threads(prompts[0], sorted({1, max(1, cores - 1), cores}))
    if decoder.admission.device.type == "cpu":
        torch.set_num_threads(1)  # the decoder's own tensors are small; `peer` sets its number for its runs

    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("measuring", total=None)
        tick = partial(progress.advance, task)
        costs = forward_costs(pair.target, pair.draft, _COST_CONTEXT, options.max_draft_tokens + 1)  # type: ignore[arg-type]
        lines = {}
        for mode, temperature in modes.items():
            progress.update(task, description=f"decoding, {mode}")
            every: list[int | str] = [0, *windows, "auto"]
            ways: list[Way] = [our_way(decoder, k, temperature, options.new_tokens) for k in every]
            ways += [our_way(decoder, middle, temperature, options.new_tokens, drafter=name) for name in others]
            if temperature > 0:
                ways += [our_way(decoder, middle, temperature, options.new_tokens, name) for name in STRATEGIES]
            ways += [peer.way(k, temperature) for k in (0, *windows)]
            for way in ways:
                way.decode(prompts[0], 0)
            lines[mode] = compare(ways, prompts, costs, tick)
        both, tokens = (0, middle), options.new_tokens
        limit = decoder.admission.max_positions
        contexts = [length for length in CONTEXTS if limit is None or length + 20 <= limit]
        progress.update(task, description="contexts, batches, events")
        text = [token for prompt in prompts for token in prompt]
        costs_of = partial(step_costs, decoder, prompts, options.max_draft_tokens, tokens, tick)
        report = {
            "target": pair.names["target"],
            "draft": pair.names["draft"],
            "head": pair.names.get("head"),
            "device": str(decoder.admission.device),
            "executor": getattr(pair.target, "executor", "transformers"),
            "machine": platform.machine(),
            "threads": f"transformers in {peer.threads} threads",
            "new_tokens": tokens,
            "num_prompts": len(prompts),
            "decoding": {mode: [line.to_dict() for line in found] for mode, found in lines.items()},
            "forwards": {"context": costs.context, "draft_ms": costs.draft_ms, "verify_ms": costs.verify_ms},
            "costs": {"draft": costs.draft, "verify": costs.verify},
            "step_costs": costs_of("model").to_dict(),
            "by_context": {} if options.quick else by_context(decoder, text, contexts, both, tick),
            "by_batch": {} if options.quick else by_batch(decoder, prompts, BATCHES, both, tokens, tick),
            "event_overhead": {} if options.quick else event_overhead(decoder, prompts, middle, tokens, tick),
            "memory_mib": memory_mib(decoder.admission.device),
        }
        if pair.head is not None:
            report["step_costs"] |= {"head": costs_of("head").to_dict(), "fastest_drafter": fastest_drafter(lines, middle)}
    return report, lines


def _prompts(path: Path | None) -> list[str]:
    if path is None:
        return list(PROMPTS)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"--prompts {path}: the file has no lines")
    return lines


def _load_for_transformers(options: argparse.Namespace) -> tuple[Any, Any]:
    """The same weights as plain transformers models, in the same precision on the same device."""
    bundled = options.target is None
    folders = (BUNDLED_PAIR / "target", BUNDLED_PAIR / "draft") if bundled else (options.target, options.draft)
    plain: Any = load_pair(*folders, device=options.device, dtype=options.dtype, executor="transformers")
    return plain.target.model, plain.draft.model
