"""What the command lines share."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and ends with status 2."""

    def error(self, message: str) -> NoReturn:
        """Say it."""
        self.exit(2, f"{self.prog}: {message}\n")


def positive(text: str) -> int:
    """A whole number from 1, or an `argparse.ArgumentTypeError`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive whole number, got {text!r}")
    return int(text)


def window(text: str) -> int | str:
    """A number of draft tokens: a whole number or "auto", or an `argparse.ArgumentTypeError`."""
    if text != "auto" and not text.lstrip("-").isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number or auto, got {text!r}")
    return text if text == "auto" else int(text)
