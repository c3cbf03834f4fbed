"""The command line: `python -m naive_speculate generate "PROMPT"`, `… bench`, `… prove`, `…
differ` and `… doctor FILE`."""

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

from naive_speculate.tools.arguments import (
    Parser,
    add_models,
    as_typed,
    number,
    number_or,
    numbers_by_token,
    print_for_people,
    print_for_programs,
    print_json,
    token_list,
    whole_number,
)

if TYPE_CHECKING:
    from naive_speculate.events import Event
    from naive_speculate.sampling.options import Option

_DEFAULTS = {"max_tokens": 128}  # where they differ from the library's
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
    help = "decode a prompt and show its draft tokens and verdicts"
    described = f"{help.capitalize()}; a file or a pipe gets the generated text alone."
    generate = commands.add_parser("generate", help=help, description=described)
    generate.add_argument("prompt", metavar="PROMPT")
    help = "the prompt is a message, for the tokenizer's chat template"
    generate.add_argument("--chat", action="store_true", help=help)
    if arguments[:1] == ["generate"]:  # these list registered names, which imports torch
        from naive_speculate.sampling.params import SamplingParams
        from naive_speculate.speculate.request import Request

        _add_options(generate, "speculation", Request)
        _add_options(generate, "sampling (vLLM's names and meanings)", SamplingParams)
        _add_guides(generate)
        add_models(generate)
    help = "print the events, one JSON object per line, and nothing else"
    generate.add_argument("--json", action="store_true", help=help)
    for name, (_, help) in _COMMANDS.items():
        commands.add_parser(name, help=help)
    return parser


def _add_options(parser: argparse.ArgumentParser, title: str, of: type) -> None:
    """An option for each of a class's; those that are not given have no value."""
    from naive_speculate.sampling.options import options_of

    add = parser.add_argument_group(title).add_argument
    for name, option in options_of(of).items():
        default = _DEFAULTS.get(name, option.default)
        flag, help, how = name.replace("_", "-"), option.meaning.removesuffix("."), _how(option)
        if default is True:
            flag, help = f"no-{flag}", f"off: {help}"
        if option.form is not bool:
            repeatable = "repeatable" if how.get("action") == "append" else ""
            shown = option.none if default is None else "none" if default == () else default
            notes = (repeatable, option.limits, f"default: {shown}")
            help += f" ({'; '.join(filter(None, notes))})"
        help = help.replace("%", "%%")
        add(f"--{flag}", dest=name, default=argparse.SUPPRESS, help=help, **how)


def _how(option: "Option") -> dict[str, Any]:
    if option.form is bool:
        return {"action": "store_false" if option.default else "store_true"}
    if option.form is Mapping:
        return {"type": numbers_by_token, "metavar": "JSON"}
    if option.form is Sequence:
        if option.items is str:
            return {"action": "append", "metavar": "TEXT"}
        return {"type": token_list, "metavar": "ID,ID…"}
    if option.form is float:
        return {"type": number, "metavar": "X"}
    if option.form is int:
        words = [*option.among]
        if option.none is not None and option.default is not None:
            words.append("none")
        return {"type": number_or(words) if words else whole_number, "metavar": "N"}
    return {"metavar": option.name.rpartition("_")[2].upper()}


def _add_guides(parser: argparse.ArgumentParser) -> None:
    title = "guided decoding (at most one; needs the extra 'guided')"
    add = parser.add_argument_group(title).add_argument
    add("--guided-json", metavar="SCHEMA", help="the output is JSON of this schema")
    add("--guided-regex", metavar="REGEX", help="the output matches this regular expression")
    help = "the output is this text; repeatable"
    add("--guided-choice", action="append", metavar="TEXT", help=help)
    help = "the output is derived from the rule root of this grammar"
    add("--guided-grammar", metavar="EBNF", help=help)


def _params(args: argparse.Namespace) -> Any:
    from naive_speculate import SamplingParams

    names = [field.name for field in fields(SamplingParams)]
    sampling = {name: getattr(args, name) for name in names if hasattr(args, name)}
    kinds = ("json", "regex", "choice", "grammar")
    guided = {kind: getattr(args, f"guided_{kind}") for kind in kinds}
    guided = {kind: value for kind, value in guided.items() if value is not None}
    return SamplingParams(**_DEFAULTS | {"guided_decoding": guided or None} | sampling)


def _generate(arguments: Sequence[str]) -> int:
    args = _parser(arguments).parse_args(arguments)
    _quieten_transformers()

    from naive_speculate import SpeculativeDecoder, load_pair
    from naive_speculate.models.threads import leave_cores_to
    from naive_speculate.sampling.options import options_of
    from naive_speculate.speculate.request import Request
    from naive_speculate.tools.tables import rounding_bar

    params = _params(args)
    with rounding_bar(args.weights) as progress:
        how = {name: getattr(args, name) for name in ("device", "dtype", "executor", "weights")}
        pair = load_pair(args.target, args.draft, args.head, **how, progress=progress)
    leave_cores_to(pair.target)
    decoder = SpeculativeDecoder(pair)
    cancel = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: _leave() if cancel.is_set() else cancel.set())
    options = {name: getattr(args, name) for name in options_of(Request) if hasattr(args, name)}
    options |= {"chat": args.chat, "detail": "full" if args.json else "none", "cancel": cancel}
    traces: Iterable[Iterable[Event]]
    if params.num_sequences > 1:
        outputs = decoder.generate(args.prompt, params, **options).outputs
        traces = [output.trace.events for output in outputs]
    else:
        traces = [decoder.stream(args.prompt, params, **options)]
    failure = _show(traces, args.json)
    if cancel.is_set():
        raise KeyboardInterrupt
    if failure is not None:
        _report(failure)
    return 0 if failure is None else 1


def _show(traces: "Iterable[Iterable[Event]]", as_json: bool) -> str | None:
    """Returns the message of the last run that failed."""
    from naive_speculate.events import FinishReason
    from naive_speculate.events.trace import dumps
    from naive_speculate.tools.show.terminal import TerminalView

    if not sys.stdout.isatty():  # the text alone, which `differ` may read
        print_for_programs()
    view = None if as_json else TerminalView()
    failure = None
    for event in chain.from_iterable(traces):
        failure = event.message if event.finish_reason == FinishReason.ERROR else failure
        if view is None:
            print_json(dumps(event))
        else:
            view.show(event)
    return failure


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
    """End at once: while libraries load, or on a second Ctrl-C, an exception could be caught or
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
        with contextlib.suppress(OSError):  # so that Python's exit does not fail too
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _report(f"{error.filename or 'standard output'}: {error.strerror or error}")
    return 2


if __name__ == "__main__":
    sys.exit(main())
