"""Parts of the benchmarks' tables."""

from rich.console import Console
from rich.table import Column


def output(width: int) -> Console:
    """The terminal, or lines of this width if the output is a file."""
    console = Console()
    return console if console.is_terminal else Console(width=width)


def numbers(*headings: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(heading, justify="right") for heading in headings]
