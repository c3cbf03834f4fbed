"""The command line: `python -m naive_speculate generate "PROMPT"`, `… bench`, `… prove`, `…
differ` and `… doctor FILE`."""

import argparse
import contextlib
import inspect
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any, NoReturn

from naive_speculate.arguments import (
    Parser,
    add_models,
    as_typed,
    number,
    parsed,
    print_for_people,
    print_for_programs,
    print_json,
    whole_number,
    window,
)

DEFAULT_MAX_TOKENS = 128
INTERRUPTED = 130
_COMMANDS = {
    "bench": ("tools.bench", "compare this decoder with transformers' generation"),
    "doctor": ("tools.doctor", "diagnose an engine's speculative decoding from its log"),
    "differ": ("tools.differ", "explain why two texts of the same prompt differ"),
    "prove": (
        "tools.prove",
        "prove that a verifier, drafter, rejection sampler or server is lossless",
    ),
}
"""Commands that parse their own arguments, each with its room."""


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = Parser(prog="naive_speculate", description="Visible speculative decoding.")
    commands = parser.add_subparsers(
        dest="command", required=True, parser_class=Parser, metavar="COMMAND"
    )
    generate = commands.add_parser(
        "generate", help="decode a prompt and show its draft tokens and verdicts"
    )
    generate.add_argument("prompt", metavar="PROMPT")
    if arguments[:1] == ["generate"]:  # these list registered names, which imports torch
        _add_decoding(generate)
        _add_sampling(generate)
        add_models(generate)
    generate.add_argument(
        "--json",
        action="store_true",
        help="print the events, one JSON object per line, and nothing else",
    )
    for name, (_, help) in _COMMANDS.items():
        commands.add_parser(name, help=help)
    return parser


def _add_decoding(parser: argparse.ArgumentParser) -> None:
    from naive_speculate.speculate.draft import DRAFTERS
    from naive_speculate.speculate.verify import VERIFIERS

    notes = {
        name: " (lossy)" if v.lossy else " (as at temperature 0)" if v.greedy else ""
        for name, v in VERIFIERS.items()
    }
    strategies = ", ".join(f"{name}{note}" for name, note in notes.items())
    add = parser.add_argument_group("speculation").add_argument
    help = "draft tokens per step, 0 or auto (default: %(default)s)"
    add("--num-draft-tokens", type=window, default=5, metavar="K", help=help)
    help = "end a window after a token with a lower draft probability (default: none)"
    add("--draft-confidence", type=number, metavar="C", help=help)
    help = (
        "sampled from the draft model's distribution, or its most probable token, argmax (default:"
        " %(default)s)"
    )
    add("--draft-sampling", default="sampled", metavar="S", help=help)
    help = (
        "several candidates per position: the children of a node by depth, such as 4x2x1 (default:"
        " none)"
    )
    add("--tree", metavar="T", help=help)
    help = f"how draft tokens are verified: {strategies} (default: %(default)s)"
    add("--verify-strategy", default="speculative_sampling", metavar="V", help=help)
    copying = "suffix and prompt_lookup copy from the text so far, suffix+head where it repeats"
    help = f"the drafter: {', '.join(DRAFTERS)}; {copying} (default: the pair's own)"
    add("--drafter", metavar="D", help=help)


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add an option for every field of `SamplingParams`, with its docstring's text; options that
    are not given have no value."""
    from naive_speculate import SamplingParams

    described = inspect.cleandoc(SamplingParams.__doc__ or "")
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)\.$", described, re.MULTILINE)
    meanings = {name: " ".join(text.split()) for name, text in entries}
    defaults = {f.name: f.default for f in fields(SamplingParams)} | {
        "max_tokens": DEFAULT_MAX_TOKENS,
        "best_of": "n",
    }
    add = parser.add_argument_group("sampling (vLLM's names and meanings)").add_argument
    max_tokens = parsed(
        lambda text: None if text.lower() == "none" else int(text), "a whole number or none"
    )
    token_list = parsed(
        lambda text: [int(part) for part in text.split(",")], "token ids with commas between them"
    )
    bias = parsed(
        lambda text: {int(t): float(b) for t, b in json.loads(text).items()},
        'JSON such as {"42": -5}',
    )
    own: dict[str, dict[str, Any]] = {  # all others are numbers or flags
        "max_tokens": {"type": max_tokens, "metavar": "N"},
        "stop": {"action": "append", "metavar": "TEXT"},
        "bad_words": {"action": "append", "metavar": "WORD"},
        "stop_token_ids": {"type": token_list, "metavar": "ID,ID…"},
        "allowed_token_ids": {"type": token_list, "metavar": "ID,ID…"},
        "logit_bias": {"type": bias, "metavar": "JSON"},
        "filter_words": {"choices": ["classroom"]},
    }
    notes = {
        "stop": "; repeatable",
        "bad_words": "; repeatable",
        "logit_bias": '; such as {"42": -5}',
    }
    for name, default in defaults.items():
        if name in ("logits_processors", "guided_decoding"):
            continue
        option, help = name.replace("_", "-"), meanings.get(name, name) + notes.get(name, "")
        if isinstance(default, bool):
            option, help = ("no-" + option, "off: " + help) if default else (option, help)
            how: dict[str, Any] = {"action": "store_false" if default else "store_true"}
        else:
            help += f" (default: {'none' if default in (None, ()) else default})"
            number_of = (
                {"type": number, "metavar": "X"}
                if isinstance(default, float)
                else {"type": whole_number, "metavar": "N"}
            )
            how = own.get(name, number_of)
        add(
            f"--{option}", dest=name, default=argparse.SUPPRESS, help=help.replace("%", "%%"), **how
        )
    guided = parser.add_argument_group(
        "guided decoding (at most one; needs the extra 'guided')"
    ).add_argument
    guided("--guided-json", metavar="SCHEMA", help="the output is JSON of this schema")
    guided("--guided-regex", metavar="REGEX", help="the output matches this regular expression")
    guided(
        "--guided-choice",
        action="append",
        metavar="TEXT",
        help="the output is this text; repeatable",
    )
    guided(
        "--guided-grammar",
        metavar="EBNF",
        help="the output is derived from the rule root of this grammar",
    )


def _params(args: argparse.Namespace) -> Any:
    from naive_speculate import SamplingParams

    names = {f.name for f in fields(SamplingParams)}
    given = {name: value for name, value in vars(args).items() if name in names}
    guided = {
        kind: getattr(args, f"guided_{kind}") for kind in ("json", "regex", "choice", "grammar")
    }
    guided = {kind: value for kind, value in guided.items() if value is not None}
    return SamplingParams(
        **{"max_tokens": DEFAULT_MAX_TOKENS, "guided_decoding": guided or None} | given
    )


def _generate(arguments: Sequence[str]) -> int:
    args = _parser(arguments).parse_args(arguments)
    _quieten_transformers()

    from naive_speculate import SpeculativeDecoder, load_pair
    from naive_speculate.events import FinishReason
    from naive_speculate.events.trace import dumps
    from naive_speculate.infer.threads import leave_cores_to
    from naive_speculate.tables import rounding_bar
    from naive_speculate.terminal import TerminalView

    params = _params(args)
    with rounding_bar(args.weights) as progress:
        pair = load_pair(
            args.target,
            args.draft,
            args.head,
            device=args.device,
            dtype=args.dtype,
            executor=args.executor,
            weights=args.weights,
            progress=progress,
        )
    leave_cores_to(pair.target)
    decoder = SpeculativeDecoder(pair)
    cancel = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: _leave() if cancel.is_set() else cancel.set())
    names = (
        "num_draft_tokens",
        "draft_confidence",
        "draft_sampling",
        "tree",
        "verify_strategy",
        "drafter",
    )
    options: dict[str, Any] = {name: getattr(args, name) for name in names}
    options |= {"detail": "full" if args.json else "none", "cancel": cancel}
    if params.num_sequences > 1:
        traces = [
            output.trace.events
            for output in decoder.generate(args.prompt, params, **options).outputs
        ]
    else:
        traces = [decoder.stream(args.prompt, params, **options)]
    if not sys.stdout.isatty():  # the text alone, which `differ` may read
        print_for_programs()
    view = None if args.json else TerminalView()
    failure = None
    for events in traces:
        for event in events:
            failure = event.message if event.finish_reason == FinishReason.ERROR else failure
            if view is None:
                print_json(dumps(event))
            else:
                view.show(event)
    if cancel.is_set():
        raise KeyboardInterrupt
    if failure is not None:
        _report(failure)
        return 1
    return 0


def _run(command: str, arguments: list[str]) -> int:
    if command in ("differ", "prove"):
        _quieten_transformers()
    if command in ("bench", "prove"):  # so that it removes its progress bar, or reports what it has
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return int(import_module(f"naive_speculate.{_COMMANDS[command][0]}.command").main(arguments))


def _quieten_transformers() -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def _report(message: str) -> None:
    print(f"naive_speculate: {' '.join(message.split())}", file=sys.stderr, flush=True)


def _leave(*_: object) -> NoReturn:
    """End at once. While libraries load, or on a second Ctrl-C, an exception could be caught or
    printed elsewhere."""
    with contextlib.suppress(OSError):
        _report("interrupted")
    os._exit(INTERRUPTED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; handles Ctrl-C. Returns the exit status: 0; 1 if a run ended in an error or
    a proof failed; 2 for bad input or if the output cannot be written; 3 if a server's test was
    not decided; 130 if interrupted."""
    signal.signal(signal.SIGINT, _leave)
    print_for_people()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        try:
            if arguments and arguments[0] in _COMMANDS:
                return _run(arguments[0], arguments[1:])
            return _generate(arguments)
        finally:
            print(end="", flush=True)  # raises now if the output cannot be written
    except KeyboardInterrupt:
        _report("interrupted")
        return INTERRUPTED
    except ValueError as error:
        _report(as_typed(str(error), arguments))
    except OSError as error:  # a full disk, or a closed pipe
        with contextlib.suppress(OSError):
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # so that Python's exit does not fail too
        _report(f"{error.filename or 'standard output'}: {error.strerror or error}")
    return 2


if __name__ == "__main__":
    sys.exit(main())
