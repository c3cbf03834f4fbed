"""What is optional: without it there is one line that names the extra, and the README names them all."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCKER = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "xgrammar":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
NEEDED = "guided_decoding needs xgrammar: pip install 'naive-speculate[guided]'"


PROGRAM = """
import sys
import naive_speculate.serving
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.__main__ import main
print(SpeculativeDecoder(load_pair()).generate("Once", SamplingParams(max_tokens=3)).finish_reason)
try:
    SamplingParams(guided_decoding={"regex": "a+"})
except ValueError as error:
    print(error)
print(main(["generate", "Once", "--guided-regex", "a+"]))
print("ray" in sys.modules)
"""


@pytest.fixture(scope="module")
def without_xgrammar(tmp_path_factory) -> subprocess.CompletedProcess[str]:
    """What the program does in a process in which xgrammar cannot be imported."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "sitecustomize.py").write_text(BLOCKER)
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)


def test_without_xgrammar_the_library_decodes_and_names_the_extra(without_xgrammar):
    lines = without_xgrammar.stdout.splitlines()
    assert lines[0] == "length"
    assert lines[1].startswith(NEEDED)


def test_the_local_engine_needs_no_ray(without_xgrammar):
    assert without_xgrammar.stdout.splitlines()[3:] == ["False"]


def test_without_xgrammar_the_command_line_names_the_extra(without_xgrammar):
    assert without_xgrammar.stdout.splitlines()[2] == "2"
    assert len(without_xgrammar.stderr.splitlines()) == 1
    assert without_xgrammar.stderr.startswith(f"naive_speculate: {NEEDED}")


def test_the_documentation_names_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    library = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    for extra in project["optional-dependencies"]:
        assert f"| `{extra}` |" in library
