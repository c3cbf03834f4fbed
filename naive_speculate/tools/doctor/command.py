"""The command `python -m naive_speculate doctor FILE…`, or `… doctor < log`."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from naive_speculate.tools.arguments import Parser, adder, parsed, positive, print_json
from naive_speculate.tools.doctor.compare import show_comparison, to_dict
from naive_speculate.tools.doctor.diagnosis import from_words, parameters
from naive_speculate.tools.doctor.formats import KNOWN, decoded, read
from naive_speculate.tools.doctor.reading import SPEEDS, Reading
from naive_speculate.tools.doctor.report import show
from naive_speculate.tools.doctor.suspects import diagnose
from naive_speculate.tools.tables import Output

_WIDTH = 120  # of output to a file or a pipe


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="naive_speculate doctor",
        description="Diagnoses an engine's speculative decoding from its logs, all together.",
        epilog=f"Supported: {KNOWN}.",
    )
    add = adder(parser)
    speed = parsed(float, "a positive number", lambda value: 0 < value < math.inf)
    add(
        "files FILE",
        "logs, responses or metrics, read as one text; - is standard input, the default",
        nargs="*",
    )
    add(
        "--against FILE",
        "compare with another log; several, given one by one, are read as one text",
        default=[],
        action="append",
    )
    _add_costs(add)
    add("--num-draft-tokens K", "the window, if the log does not contain it", positive)
    add("--speed N", "tokens per second with drafting, if the log does not contain them", speed)
    add("--plain-speed N", "tokens per second without drafting, on the same prompts", speed)
    add(
        "--profile FILE",
        "write the acceptance rates by index, and by category if known, to FILE as JSON",
    )
    add(
        "--this-machine",
        "measure this machine instead of reading logs: float32 and 8-bit weights on its CPU",
        action="store_true",
    )
    add("--json", "print the diagnosis as a JSON object and nothing else", action="store_true")
    return parser


def _add_costs(add: Callable[..., Any]) -> None:
    size = parsed(str, "a size such as 0.6B or 350M", lambda text: parameters(text) > 0)
    cost = parsed(str, "a number", lambda text: bool(text.strip()))
    help = "time of a draft pass ÷ time of a target pass over one token"
    add("--draft-cost C", f"{help}; or two sizes such as 0.6B/8B", cost)
    help = (
        "time of a target pass over 1, 2, 3 … tokens ÷ time over one, such as 1,1.02,1.05; or one"
        " number (default: 1)"
    )
    add("--verify-cost V,V…", help, cost)
    add("--draft-size N", "parameters of the draft, such as 0.6B, to estimate its cost", size)
    help = "parameters of the target; for a mixture of experts the active ones"
    add("--target-size N", help, size)


def _bytes(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {file!r:.80}: {error.strerror}") from None


def _read(files: Sequence[str]) -> Reading:
    return read("\n".join(decoded(_bytes(file)) for file in files))


def _this_machine(args: argparse.Namespace) -> int:
    from naive_speculate.tools.doctor.machine import measured, show  # it loads models

    if args.files:
        raise ValueError(f"give either --this-machine or logs, got {args.files[0]!r:.80} too")
    measurement = measured()
    if args.json:
        print_json(measurement)
    else:
        show(measurement, Output(_WIDTH))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Raises `ValueError` if a file cannot be read, no format is recognised, or an option is out of
    range."""
    args = _parser().parse_args(arguments)
    if args.this_machine:
        return _this_machine(args)
    draft, verify, sizes = args.draft_cost, args.verify_cost, (args.draft_size, args.target_size)
    if None in sizes and any(sizes):
        raise ValueError("--draft-size and --target-size must be given together")
    if draft and any(sizes):
        raise ValueError("give either --draft-cost, or --draft-size and --target-size")
    if verify and not draft and not any(sizes):
        raise ValueError("--verify-cost needs --draft-cost, or --draft-size and --target-size")
    table, basis = from_words(" / ".join(sizes) if all(sizes) else draft or "", verify or "")
    speeds = zip(SPEEDS, (args.speed, args.plain_speed), strict=True)
    measured = {name: speed for name, speed in speeds if speed is not None}
    reading = replace(_read(args.files or ["-"]), **measured)
    diagnosis = diagnose(reading, table, num_draft_tokens=args.num_draft_tokens)
    if args.profile is not None:
        profile = json.dumps(diagnosis.profile(), indent=2, ensure_ascii=False, allow_nan=False)
        try:
            Path(args.profile).write_text(profile + "\n", encoding="utf-8", newline="\n")
        except OSError as error:
            why = f"cannot write {args.profile!r:.80}: {error.strerror}"
            raise ValueError(f"--profile: {why}") from None
    if args.against:
        other = diagnose(_read(args.against), table, num_draft_tokens=args.num_draft_tokens)
        if args.json:
            print_json(to_dict(diagnosis, other))
        else:
            show_comparison(diagnosis, other, Output(_WIDTH))
    elif args.json:
        print_json(diagnosis.to_dict())
    else:
        show(diagnosis, Output(_WIDTH), basis)
    return 0
