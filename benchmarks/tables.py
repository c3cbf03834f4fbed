"""Parts of the benchmarks' tables."""

from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from naive_speculate.arguments import print_for_people


def output(width: int) -> Console:
    """The terminal, or lines of this width if the output is a file."""
    print_for_people()
    console = Console()
    return console if console.is_terminal else Console(width=width)


def numbers(*headings: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(heading, justify="right") for heading in headings]


def show(tables: list[Table], width: int, path: Path | None) -> None:
    """Print tables, and save them in a file if there is a path."""
    output(width).print(*tables)
    if path is not None:
        with path.open("w", encoding="utf-8") as file:
            Console(file=file, width=width).print(*tables)
