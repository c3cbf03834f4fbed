"""`make check` and the parts that it leaves out are together what `make test` runs; the tests
that documents name exist."""

import re
import shlex
import subprocess
import tomllib

from benchmarks.server import ROOT
from tests.conftest import PARTS


def markers(command: list[str]) -> str:
    """Which tests a pytest command runs, as a Python expression of markers."""
    return command[command.index("-m") + 1]


def command_of(target: str) -> list[str]:
    """What `make` would run pytest with."""
    shown = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return shlex.split(re.search(r"-m pytest (.*)", shown)[1])


def test_every_test_is_of_check_or_of_one_other_part_and_all_of_them_are_run_by_test(
    collected, request
):
    names = [line.split(":")[0] for line in request.config.getini("markers")]
    marks = [
        {name: item.get_closest_marker(name) is not None for name in names} for item in collected
    ]

    def chosen(expression: str) -> list[str]:
        return [
            item.nodeid
            for item, has in zip(collected, marks, strict=True)
            if eval(expression, {}, has)
        ]

    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "pytest"
    ]["ini_options"]
    of_pytest = markers(shlex.split(options["addopts"]))  # without a selection, as in `make test`
    check = command_of("check")
    parts = (markers(check), *PARTS)
    assert sorted(test for part in parts for test in chosen(part)) == sorted(chosen(of_pytest))
    assert "-m" not in command_of("test")
    assert {word.removeprefix("--ignore=") for word in check if word.startswith("--ignore=")} <= {
        *PARTS.values()
    }


def test_the_tests_that_documents_name_are_there():
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    named = set(re.findall(r"(test_\w+\.py)::(test_\w+)", text))
    there = {
        (file.name, test)
        for file in (ROOT / "tests").rglob("test_*.py")
        for test in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(named) > 40
    assert named <= there
