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
from rich.progress import Progress

from naive_speculate.infer.device import is_installed
from naive_speculate.models import load_pair
from naive_speculate.models.files import is_gguf
from naive_speculate.models.threads import THREADS_VARIABLE, num_threads
from naive_speculate.pair import BUNDLED_PAIR, ModelPair
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.tools.arguments import (
    Parser,
    add_models,
    adder,
    lines_of_file,
    number,
    positive,
    print_json,
    windows,
)
from naive_speculate.tools.bench.comparison import Comparison
from naive_speculate.tools.bench.measure import Transformers
from naive_speculate.tools.bench.report import save_plots, show, show_suite, suite_svg
from naive_speculate.tools.bench.suite import (
    answers_of,
    drafters_of,
    encode,
    figures,
    read_suite,
    ways_of,
)
from naive_speculate.tools.tables import Output, progress_bar, rounding_bar

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
_OF_SUITES = (
    "drafters",
    "num_draft_tokens",
    "max_tokens",
    "temperature",
    "limit",
    "threads",
    "svg",
    "transformers",
)
_OF_PROMPTS: tuple[str, ...] = (
    "prompts",
    "new_tokens",
    "max_draft_tokens",
    "quick",
    "plots",
    "write_costs",
)
_WIDTH = 160  # of tables written to a file or a pipe


def _parser() -> argparse.ArgumentParser:
    says = "Compare this decoder with transformers' generation; measure a pair on your questions."
    parser = Parser(prog="naive_speculate bench", description=says)
    add_models(parser)
    json_only = "print the numbers as JSON and nothing else on standard output"
    adder(parser)("--json", json_only, action="store_true")
    title = "prompts: plain decoding and every window"
    _add_prompts(adder(parser.add_argument_group(title)))
    title = "questions instead of prompts: plain decoding and drafters, by category"
    _add_suite(adder(parser.add_argument_group(title)))
    return parser


def _add_prompts(add: Callable[..., None]) -> None:
    add("--prompts FILE", "one prompt per line (default: eight beginnings)", lines_of_file, PROMPTS)
    add("--new-tokens N", "tokens to generate", positive, 96)
    add("--max-draft-tokens K", "largest window", positive, 8)
    add("--quick", "only the greedy comparison, with half the prompts", action="store_true")
    add("--plots FOLDER", "save plots in this folder", Path)
    costs = 'save step costs for num_draft_tokens="auto" and the fastest drafter'
    add("--write-costs FILE", costs, Path)


def _add_suite(add: Callable[..., None]) -> None:
    add("--suite FILE", 'JSON lines with "category" and "turns", as in Spec-Bench', Path)
    drafters = (
        "drafters, besides plain decoding, also as head:argmax, and with trees as head:4x2x1"
        " (default: all)"
    )
    add("--drafters D,D…", drafters)
    add("--num-draft-tokens K,K…", "draft tokens per step, or auto (default: 5)", windows, [5])
    theirs = "also transformers' plain, assisted and prompt lookup generation"
    add("--transformers", theirs, action="store_true")
    add("--max-tokens N", "most tokens per answer", positive, 128)
    add("--temperature X", "0 compares the texts too", number, 0.0)
    add("--limit N", "questions per category (default: all)", positive)
    add("--threads N", "number of threads (default: as for decoding)", positive)
    add("--svg FILE", "save a plot in this file", Path)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Options of the other kind of benchmark are errors."""
    parser = _parser()
    options = parser.parse_args(argv)
    others, why = _OF_PROMPTS, "does not go with --suite"
    if options.suite is None:
        others, why = _OF_SUITES, "needs --suite"
    for name in others:
        if getattr(options, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} {why}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Raises `ValueError` if an input is bad; `OSError` if a file cannot be read or written;
    `KeyboardInterrupt` after a report of the questions of a suite so far."""
    options = _parse(argv)
    _check_outputs(options)
    with_suite, console = options.suite is not None, Console(stderr=True)
    with redirect_stdout(sys.stderr):
        hidden = not console.is_terminal
        with progress_bar(console, transient=not with_suite, disable=hidden) as progress:
            report = (_measure_suite if with_suite else _compare)(options, progress)
        if options.plots is not None:
            for path in save_plots(report, options.plots):
                console.print(f"saved {path}")
        if options.write_costs is not None:
            costs = json.dumps(report["step_costs"]) + "\n"
            options.write_costs.write_text(costs, encoding="utf-8", newline="\n")
    if options.svg is not None:
        options.svg.write_text(suite_svg(report), encoding="utf-8", newline="\n")
    if options.json:
        print_json(json.dumps(report, indent=2))
    else:
        (show_suite if with_suite else show)(report, Output(_WIDTH))
    if report.get("interrupted"):
        raise KeyboardInterrupt
    return 0


def _check_outputs(options: argparse.Namespace) -> None:
    """Fail now, not after hours of work."""
    if options.plots is not None:
        if not is_installed("matplotlib", "0"):
            raise ValueError("--plots needs matplotlib: pip install '.[plots]' in the repository")
        options.plots.mkdir(parents=True, exist_ok=True)
    for path in (options.svg, options.write_costs):
        if path is not None:
            is_new = not path.exists()
            path.open("a").close()
            if is_new:
                path.unlink()


def _measure_suite(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    questions, drafters = read_suite(options.suite, options.limit), drafters_of(options.drafters)
    if options.threads is not None:
        os.environ[THREADS_VARIABLE] = str(options.threads)
    pair = _load(options, options.target, options.draft, options.head)
    threads = num_threads()
    beside = getattr(pair.target, "computes_beside_torch", False)
    torch.set_num_threads(1 if beside else threads)
    params = SamplingParams(temperature=options.temperature, max_tokens=options.max_tokens)
    peer = None
    if options.transformers:
        peer = _transformers(options, options.max_tokens, ends=True)
        peer.threads = threads
    decoder, windows = SpeculativeDecoder(pair), options.num_draft_tokens
    ways = ways_of(decoder, drafters, windows, params, peer)
    prompts = encode(decoder, options.suite, questions)
    task = progress.add_task("measuring", total=len(ways) * len(questions))

    def tick(number: int) -> None:
        progress.update(task, advance=1, description=questions[number].category)

    answers, interrupted = answers_of(ways, prompts, tick)
    return {
        "suite": options.suite.name,
        **{role: pair.names.get(role) for role in ("target", "draft", "head")},
        "device": str(decoder.admission.device),
        "machine": platform.machine(),
        "threads": threads if decoder.admission.device.type == "cpu" else None,
        "executor": getattr(pair.target, "executor", "transformers"),
        "chat": decoder.admission.has_chat_template,
        "num_draft_tokens": windows[0] if len(windows) == 1 else windows,
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "interrupted": interrupted,
        **figures(ways, questions, answers, params.temperature),
    }


def _compare(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    for option in ("target", "draft"):
        if (path := getattr(options, option)) is not None and is_gguf(path):
            peer = "transformers, with which this compares, does not compute GGUF files"
            raise ValueError(f"--{option} {path}: {peer}")
    pair = _load(options, options.target, options.draft, options.head)
    if pair.draft is None:
        raise ValueError("a draft model is needed: give --draft")
    decoder = SpeculativeDecoder(pair)
    prompts = [decoder.admission.encode(text) for text in options.prompts]
    if options.quick:
        prompts = prompts[: max(1, len(prompts) // 2)]
    transformers = _transformers(options, options.new_tokens)
    transformers.choose_threads(prompts[0])
    if transformers.target.device.type == "cpu":
        torch.set_num_threads(1)  # this decoder's own tensors are small
    sizes = options.new_tokens, options.max_draft_tokens
    return Comparison(decoder, transformers, prompts, *sizes, options.quick).run(progress)


def _load(options: argparse.Namespace, *models: Any, executor: str | None = None) -> ModelPair:
    with rounding_bar(options.weights) as progress:
        return load_pair(
            *models,
            device=options.device,
            dtype=options.dtype,
            executor=executor or options.executor,
            # transformers is the peer that these weights are compared with
            weights="float32" if executor else options.weights,
            progress=progress,
        )


def _transformers(options: argparse.Namespace, new_tokens: int, ends: bool = False) -> Transformers:
    """With the same target and draft, in the same precision on the same device."""
    names = options.target, options.draft
    if not options.target:
        names = BUNDLED_PAIR / "target", BUNDLED_PAIR / "draft"
    models: Any = _load(options, *names, executor="transformers")
    # it assists with its own tokens alone
    draft = getattr(models.draft, "model", None) if models.translation is None else None
    return Transformers(models.target.model, draft, new_tokens, ends)
