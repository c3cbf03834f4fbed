"""The form of the code that no linter checks."""

import ast
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES, MOST_COLUMNS = 60, 100


@pytest.mark.parametrize("room", ["naive_speculate", "ui", "train", "benchmarks", "docs", "tests"])
def test_no_function_has_more_lines_than_a_screen(room):
    """From its `def` on, docstring included."""
    long = [
        f"{path.relative_to(ROOT)}: {node.name} has {lines} lines"
        for path in sorted((ROOT / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := node.end_lineno - node.lineno + 1) > MOST_LINES
    ]
    assert long == []


def test_no_line_is_wider_than_a_projector_shows():
    """The linter overlooks lines that end in a pragma, and strings without spaces."""
    places = ("app.py", "naive_speculate", "ui", "train", "benchmarks", "docs", "tests", "deploy")
    files = [path for place in places for path in [ROOT / place, *(ROOT / place).rglob("*.py")]]
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        if path.is_file()
        for number, line in enumerate(path.read_text("utf-8").split("\n"), start=1)
        if len(line) > MOST_COLUMNS
    ]
    assert long == []


def test_every_finding_can_be_run():
    findings = sorted((ROOT / "findings").glob("*.sh"))
    assert findings
    assert [path.name for path in findings if not os.access(path, os.X_OK)] == []
