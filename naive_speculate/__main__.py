"""The command line: `python -m naive_speculate generate "PROMPT"` and `python -m naive_speculate bench`."""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

DEFAULT_MAX_TOKENS = 128


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _window(text: str) -> int | str:
    if text != "auto" and not text.lstrip("-").isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number or auto, got {text!r}")
    return text if text == "auto" else int(text)


def _token_list(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be token ids with commas between them, got {text!r}") from None


def _bias(text: str) -> dict[int, float]:
    try:
        return {int(token): float(bias) for token, bias in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        raise argparse.ArgumentTypeError(f'must be JSON such as {{"42": -5}}, got {text!r}') from None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="naive_speculate", description="Speculative decoding that can be seen.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser, metavar="COMMAND")
    generate = commands.add_parser("generate", help="decode a prompt and show what was drafted, kept and refused")
    generate.add_argument("prompt", metavar="PROMPT")
    _add_decoding(generate)
    _add_sampling(generate)
    _add_models(generate)
    generate.add_argument("--json", action="store_true", help="print the events, one JSON object a line, and nothing else")
    bench = commands.add_parser("bench", add_help=False, help="measure this decoder against transformers' generation")
    bench.add_argument("rest", nargs=argparse.REMAINDER)
    return parser


def _add_decoding(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("speculation")
    group.add_argument("--num-draft-tokens", type=_window, default=5, metavar="K", help="tokens to draft, 0 or auto")
    group.add_argument("--verify-strategy", default="speculative_sampling", metavar="V", help="how drafts are judged")
    group.add_argument("--drafter", default="model", metavar="D", help="model or prompt_lookup")


def _add_models(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models")
    group.add_argument("--target", metavar="M", help="Hub id or local folder; the bundled pair without it")
    group.add_argument("--draft", metavar="M", help="Hub id or local folder")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda …")
    group.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 …")
    group.add_argument("--executor", default="auto", help="auto, onnx, torch or transformers")


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling (vLLM's names and meanings)")
    add = group.add_argument
    add("--max-tokens", type=int, default=DEFAULT_MAX_TOKENS, metavar="N")
    for name in ("temperature", "top-p", "min-p", "presence-penalty", "frequency-penalty", "repetition-penalty"):
        add(f"--{name}", type=float)
    for name in ("seed", "top-k", "n", "best-of", "min-tokens", "logprobs", "prompt-logprobs", "truncate-prompt-tokens"):
        add(f"--{name}", type=int)
    add("--stop", action="append", metavar="TEXT", help="may be given several times")
    add("--bad-words", action="append", metavar="WORD", help="may be given several times")
    add("--stop-token-ids", type=_token_list, metavar="ID,ID…")
    add("--allowed-token-ids", type=_token_list, metavar="ID,ID…")
    add("--logit-bias", type=_bias, metavar="JSON", help='such as {"42": -5}')
    for name in ("include-stop-str-in-output", "ignore-eos"):
        add(f"--{name}", action="store_true", default=None)
    for name in ("detokenize", "skip-special-tokens", "spaces-between-special-tokens"):
        add(f"--no-{name}", dest=name.replace("-", "_"), action="store_false", default=None)
    add("--guided-json", metavar="SCHEMA")
    add("--guided-regex", metavar="REGEX")
    add("--guided-choice", action="append", metavar="TEXT", help="may be given several times")
    add("--guided-grammar", metavar="EBNF")


_SAMPLING = [
    "n",
    "best_of",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "stop_token_ids",
    "bad_words",
    "include_stop_str_in_output",
    "ignore_eos",
    "max_tokens",
    "min_tokens",
    "logprobs",
    "prompt_logprobs",
    "detokenize",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "truncate_prompt_tokens",
    "logit_bias",
    "allowed_token_ids",
]


def _generate(args: argparse.Namespace) -> int:
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()

    from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
    from naive_speculate.events.trace import dumps
    from naive_speculate.infer.threads import leave_cores_to
    from naive_speculate.terminal import TerminalView

    given: dict[str, Any] = {name: getattr(args, name) for name in _SAMPLING if getattr(args, name) is not None}
    guided = {kind: getattr(args, f"guided_{kind}") for kind in ("json", "regex", "choice", "grammar")}
    if any(value is not None for value in guided.values()):
        given["guided_decoding"] = {kind: value for kind, value in guided.items() if value is not None}
    params = SamplingParams(**given)
    pair = load_pair(args.target, args.draft, device=args.device, dtype=args.dtype, executor=args.executor)
    leave_cores_to(pair.target)
    decoder = SpeculativeDecoder(pair)
    cancel = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: cancel.set())
    options: dict[str, Any] = {
        "num_draft_tokens": args.num_draft_tokens,
        "verify_strategy": args.verify_strategy,
        "drafter": args.drafter,
        "detail": "full" if args.json else "none",
        "cancel": cancel,
    }
    if params.num_sequences > 1:
        result = decoder.generate(args.prompt, params, **options)
        traces = [output.trace.events for output in result.outputs]
    else:
        traces = [decoder.stream(args.prompt, params, **options)]
    view = None if args.json else TerminalView()
    for events in traces:
        for event in events:
            if view is None:
                print(dumps(event), flush=True)
            else:
                view.show(event)
    return 130 if cancel.is_set() else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 2 for bad input, 130 when interrupted."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["bench"]:
        from naive_speculate.bench import main as bench

        return bench(arguments[1:])
    args = _parser().parse_args(arguments)
    try:
        return _generate(args)
    except ValueError as error:
        print(f"naive_speculate: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has seen enough
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())
