"""Writes docs/engines.md from the results."""

from pathlib import Path


def write_report(results: Path) -> None:
    """Write the page from all results of a folder."""
