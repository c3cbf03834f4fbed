"""The command `python -m naive_speculate bench`."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from naive_speculate.arguments import Parser, add_models, lines_of_file, number, positive, windows
from naive_speculate.bench.comparison import Comparison, choose_threads
from naive_speculate.bench.measure import Line
from naive_speculate.bench.report import save_plots, show
from naive_speculate.bench.suite import drafters_of, measure_suite, read_suite
from naive_speculate.bench.suite_report import show_suite, suite_svg
from naive_speculate.bench.ways import Transformers
from naive_speculate.infer.gguf.metadata import is_gguf
from naive_speculate.infer.threads import THREADS_VARIABLE, computes_beside_torch, num_threads
from naive_speculate.models import BUNDLED_PAIR, load_pair
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.decoder import SpeculativeDecoder

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
_OF_SUITES = ("drafters", "num_draft_tokens", "max_tokens", "temperature", "limit", "threads", "svg", "transformers")
_OF_PROMPTS = ("prompts", "new_tokens", "max_draft_tokens", "quick", "plots", "write_costs")
_INTERRUPTED = 130
_WIDTH = 160  # of tables written to a file or a pipe


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="naive_speculate bench", description=__doc__)
    add_models(parser)
    add = parser.add_argument
    add(
        "--prompts", type=lines_of_file, default=PROMPTS, metavar="FILE", help="one prompt per line (default: eight beginnings)"
    )
    add("--new-tokens", type=positive, default=96, metavar="N", help="tokens to generate (default 96)")
    add("--max-draft-tokens", type=positive, default=8, metavar="K", help="largest window (default 8)")
    add("--quick", action="store_true", help="only the greedy comparison, with half the prompts")
    add("--json", action="store_true", help="print the numbers as JSON and nothing else on standard output")
    add("--plots", type=Path, metavar="FOLDER", help="save plots in this folder")
    add("--write-costs", type=Path, metavar="FILE", help='save step costs for num_draft_tokens="auto" and the fastest drafter')
    add = parser.add_argument_group("questions instead of prompts: plain decoding and drafters, by category").add_argument
    add("--suite", type=Path, metavar="FILE", help='JSON lines with "category" and "turns", as in Spec-Bench')
    add("--drafters", metavar="D,D…", help="drafters, besides plain decoding, with trees as head:4x2x1 (default: all)")
    add("--num-draft-tokens", type=windows, default=[5], metavar="K,K…", help="draft tokens per step, or auto (default: 5)")
    add("--transformers", action="store_true", help="also transformers' plain, assisted and prompt lookup generation")
    add("--max-tokens", type=positive, default=128, metavar="N", help="most tokens per answer (default: %(default)s)")
    add("--temperature", type=number, default=0.0, metavar="X", help="0 compares the texts too (default: %(default)s)")
    add("--limit", type=positive, metavar="N", help="questions per category (default: all)")
    add("--threads", type=positive, metavar="N", help="number of threads (default: as for decoding)")
    add("--svg", type=Path, metavar="FILE", help="save a plot in this file")
    return parser


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options; options of the other kind of benchmark are errors."""
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
            report, lines = _compare(options, console)
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
        options.svg.open("a").close()  # fails now, not after hours of work, if it cannot be written
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

        params = SamplingParams(temperature=options.temperature, max_tokens=options.max_tokens)
        peer = _peer(options, threads) if options.transformers else None
        report = measure_suite(pair, options.suite, questions, drafters, options.num_draft_tokens, params, started, peer)
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


def _peer(options: argparse.Namespace, threads: int) -> Transformers:
    """The same models, computed by transformers."""
    how = {"device": options.device, "dtype": options.dtype, "executor": "transformers"}
    models: Any = load_pair(options.target, options.draft, **how)
    draft = getattr(models.draft, "model", None) if models.translation is None else None  # it assists with its own tokens alone
    peer = Transformers(models.target.model, draft, options.max_tokens, ends=True)
    peer.threads = threads
    return peer


def _compare(options: argparse.Namespace, console: Console) -> tuple[dict[str, Any], dict[str, list[Line]]]:
    for option in ("target", "draft"):
        if (given := getattr(options, option)) is not None and is_gguf(given):
            raise ValueError(f"--{option} {given}: transformers, with which this compares, does not compute GGUF files")
    how = {"device": options.device, "dtype": options.dtype, "executor": options.executor}
    pair = load_pair(options.target, options.draft, options.head, **how)
    if pair.draft is None:
        raise ValueError("a draft model is needed: give --draft")
    decoder = SpeculativeDecoder(pair)
    prompts = [decoder.admission.encode(text) for text in options.prompts]
    if options.quick:
        prompts = prompts[: max(1, len(prompts) // 2)]
    peer = Transformers(*_load_for_transformers(options), options.new_tokens)
    choose_threads(peer, prompts[0])
    comparison = Comparison(decoder, peer, prompts, options.new_tokens, options.max_draft_tokens, options.quick)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        return comparison.run(progress)


def _load_for_transformers(options: argparse.Namespace) -> tuple[Any, Any]:
    """Target and draft as transformers models, in the same precision on the same device."""
    bundled = options.target is None
    folders = (BUNDLED_PAIR / "target", BUNDLED_PAIR / "draft") if bundled else (options.target, options.draft)
    plain: Any = load_pair(*folders, device=options.device, dtype=options.dtype, executor="transformers")
    return plain.target.model, plain.draft.model
