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


@pytest.fixture
def without_xgrammar(tmp_path) -> dict[str, str]:
    """The environment of a process in which xgrammar cannot be imported."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    return os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}


def python(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_without_xgrammar_the_library_decodes_and_names_the_extra(without_xgrammar):
    program = """
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
print(SpeculativeDecoder(load_pair()).generate("Once", SamplingParams(max_tokens=3)).finish_reason)
try:
    SamplingParams(guided_decoding={"regex": "a+"})
except ValueError as error:
    print(error)
"""
    done = python(without_xgrammar, "-c", program)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "length"
    assert lines[1].startswith(NEEDED)


def test_without_xgrammar_the_command_line_names_the_extra(without_xgrammar):
    done = python(without_xgrammar, "-m", "naive_speculate", "generate", "Once", "--guided-regex", "a+")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"naive_speculate: {NEEDED}")


def test_the_readme_names_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for extra in project["optional-dependencies"]:
        assert f"| `{extra}` |" in readme
