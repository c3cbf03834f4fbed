"""Shared parts of the command lines: options, files and standard output."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """Prints errors in one line and exits with status 2."""

    def print_help(self, file: Any = None) -> None:
        """argparse itself would ignore a full disk."""
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def parsed(
    read: Callable[[str], T], what: str, accepts: Callable[[T], bool] = lambda _: True
) -> Callable[[str], T]:
    """The `type` of an option whose text `read` turns into an accepted value; otherwise the error
    says that it must be `what`."""

    def read_checked(text: str) -> T:
        try:
            if accepts(value := read(text)):
                return value
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            pass
        raise argparse.ArgumentTypeError(f"must be {what}, got {text!r:.60}")

    return read_checked


whole_number = parsed(int, "a whole number")
positive = parsed(int, "a positive whole number", lambda number: number >= 1)
number = parsed(float, "a number")
positive_number = parsed(float, "a positive number", lambda number: number > 0)


def number_or(words: Sequence[str]) -> Callable[[str], int | str | None]:
    """A whole number or one of some words; the word none is None."""

    def read(text: str) -> int | str | None:
        word = text.lower()
        return int(text) if word not in words else None if word == "none" else word

    return parsed(read, " or ".join(["a whole number", *words]))


window = number_or(["auto"])
token_list = parsed(
    lambda text: [int(part) for part in text.split(",")], "token ids with commas between them"
)
numbers_by_token = parsed(
    lambda text: {int(token): float(value) for token, value in json.loads(text).items()},
    'JSON such as {"42": -5}',
)


def as_typed(message: str, arguments: Sequence[str]) -> str:
    """A library's message, with the names of arguments as the options that the user typed."""
    for option in {one.partition("=")[0] for one in arguments if one.startswith("--")}:
        name = re.escape(option[2:].replace("-", "_"))
        typed = option.replace("\\", r"\\")
        spelling = (
            rf"^{name}\b(?:=True\b)?|(?<![-\w]){name}(?:=True\b|(?==))"  # a flag has no value
        )
        message = re.sub(spelling, typed, message) if name else message
    return message


def windows(text: str) -> list[int | str | None]:
    return [window(part.strip()) for part in text.split(",")]


def text_file(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        not_utf8 = isinstance(error, UnicodeDecodeError)
        why = "not UTF-8" if not_utf8 else getattr(error, "strerror", error)
        raise argparse.ArgumentTypeError(f"must be a file of text, got {name:.60}: {why}") from None


def lines_of_file(name: str) -> list[str]:
    """Those that are not empty."""
    # `str.splitlines` would also split at letters such as U+2028, which a prompt may hold.
    if not (lines := [line for line in text_file(name).split("\n") if line.strip()]):
        raise argparse.ArgumentTypeError(f"must be a file of text, got {name:.60}: it has no lines")
    return lines


def print_for_people() -> None:
    """Keep the terminal's encoding, with a question mark for each letter that it lacks, which would
    end the program otherwise (on Windows, files and pipes are in the code page)."""
    if isinstance(sys.stdout, TextIOWrapper):  # it is not in a notebook
        sys.stdout.reconfigure(errors="replace")


def print_for_programs() -> None:
    """UTF-8 with the line end `\\n`, whatever the locale. Half a surrogate pair, which UTF-8 lacks,
    is written as JSON would escape it."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def print_json(value: Any) -> None:
    """For programs: a text that is JSON, or a value."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, allow_nan=False)
    print_for_programs()
    print(value, flush=True)


def adder(container: Any) -> Callable[..., None]:
    """`add("--name N", help, type, default)` for a parser or group. The help names the default
    unless it has the word itself."""

    def add(name: str, help: str = "", read: Any = None, default: Any = None, **more: Any) -> None:
        option, _, metavar = name.partition(" ")
        if metavar:
            more["metavar"] = metavar
        if read is not None:
            more["type"] = read
        if default is not None:
            more["default"] = default
            if default not in ([], {}) and "default" not in help:
                help += " (default: %(default)s)"
        container.add_argument(option, help=help.strip(), **more)

    return add


def add_models(parser: argparse.ArgumentParser) -> None:
    """As of `load_pair`."""
    add = adder(parser.add_argument_group("models"))
    add("--target M", "Hub id, local folder, GGUF file or smollm2 (default: the bundled pair)")
    add("--draft M", "Hub id, local folder or GGUF file (default: none for a given target)")
    head = "Hub id or local folder of a draft head or block drafter"
    add("--head M", f"{head} (default: the bundled target's, if there is one)")
    add("--device D", "auto, cpu, cuda …", default="auto")
    add("--dtype T", "auto, float32, bfloat16 …", default="auto")
    add("--executor E", "auto, onnx, torch or transformers", default="auto")
    add("--weights W", "float32, or int8: weights rounded to 8 bits, on a CPU", default="float32")
