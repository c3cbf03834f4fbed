"""Shared parts of the command lines."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Prints errors in one line and exits with status 2."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


# For other errors argparse prints the name of the type function, so options do not use int or float.
def whole_number(text: str) -> int:
    """A whole number, or an `argparse.ArgumentTypeError`."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r:.60}") from None


def number(text: str) -> float:
    """A number, or an `argparse.ArgumentTypeError`."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r:.60}") from None


def whole_number_or(word: str, text: str) -> int | str:
    """A whole number or this word, or an `argparse.ArgumentTypeError`."""
    try:
        return word if text.lower() == word else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number or {word}, got {text!r:.60}") from None


def positive(text: str) -> int:
    """A whole number from 1, or an `argparse.ArgumentTypeError`."""
    try:
        found = int(text)
    except ValueError:
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"must be a positive whole number, got {text!r:.60}")
    return found


def window(text: str) -> int | str:
    """A number of draft tokens: a whole number or "auto", or an `argparse.ArgumentTypeError`."""
    return whole_number_or("auto", text)
