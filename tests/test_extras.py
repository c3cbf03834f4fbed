"""What is optional and what is installed: without an extra there is one line that names it, and
every package is declared."""

import json
import os
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from naive_speculate import __version__

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BLOCKER = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("llguidance", "resource"):  # the last one as on Windows
            tried.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

tried = []
sys.meta_path.insert(0, Missing())
sys.modules.pop("resource", None)
"""
NEEDED = "guided_decoding needs llguidance: pip install '.[guided]' in the repository"


PROGRAM = """
import contextlib, io, json, sys
import naive_speculate.serving
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair

result = SpeculativeDecoder(load_pair()).generate("Once", SamplingParams(max_tokens=3))
found = {"reason": result.finish_reason}
tried = sys.modules["sitecustomize"].tried
found["imported"] = [*sys.modules, *(name for name in tried if name != "resource")]

from naive_speculate.__main__ import main
from naive_speculate.tools.bench.measure import memory_mib

try:
    SamplingParams(guided_decoding={"regex": "a+"})
except ValueError as error:
    found["library"] = str(error)
with contextlib.redirect_stderr(io.StringIO()) as said:
    status = main(["generate", "Once", "--guided-regex", "a+"])
    found["guided"] = [status, said.getvalue().splitlines()]
found["memory"] = memory_mib(naive_speculate.speculate.decoder.torch.device("cpu"))
import naive_speculate.tools.bench.command
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """What the program prints in a process in which nothing optional can be imported."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "sitecustomize.py").write_text(BLOCKER)
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "HOME": str(folder)}
    command = [sys.executable, "-c", PROGRAM]
    found = json.loads(
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    )
    return found | {"at_home": [path.name for path in folder.glob(".*/*")]}


HEAVY = {"transformers.modeling_utils", "transformers.core_model_loading", "torch._dynamo"}
OPTIONAL = {
    "gradio",
    "plotly",
    "pandas",
    "ray",
    "llguidance",
    "scipy",
    "rich",
    "playwright",
}


def test_the_library_decodes_without_anything_optional_and_imports_nothing_heavy(bare):
    assert bare["reason"] == "length"
    assert bare["memory"] == {}
    assert "torch" in bare["imported"]
    assert "Microsoft" not in bare["at_home"]  # where ONNX Runtime would store what it reports
    assert not (HEAVY | OPTIONAL) & set(bare["imported"])


def test_what_needs_an_extra_names_it_in_one_line(bare):
    assert bare["library"].startswith(NEEDED)
    status, (line,) = bare["guided"]
    assert (status, line.startswith(f"naive_speculate: {NEEDED}")) == (2, True)


WRONG = re.compile(r"pip install[^\n]{0,20}naive[-_]speculate|['\"]naive-speculate\[")


def test_no_message_or_document_installs_another_project_s_package():
    """`naive-speculate` on PyPI is not this project."""
    assert canonicalize_name(PROJECT["project"]["name"]) != "naive-speculate"
    folders = ("naive_speculate", "ui", "train", "benchmarks", "docs", "deploy")
    paths = [path for name in folders for path in (ROOT / name).rglob("*.*")]
    paths = [path for path in (*paths, *ROOT.glob("*.*")) if path.suffix in (".py", ".md", ".yaml")]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    joined = {path: re.sub(r'"\s*f?"', "", text) for path, text in texts.items()}
    assert len(joined) > 200
    assert [path for path, text in joined.items() if WRONG.search(text)] == []


def test_the_documentation_names_every_extra():
    library = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    for extra in PROJECT["project"]["optional-dependencies"]:
        assert f"| `{extra}` |" in library


def test_every_package_of_the_library_is_installed():
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "naive_speculate").rglob("*.py")}
    packages = {".".join(folder.parts) for folder in folders}
    bundled = ("bundled_pair", *(f"bundled_pair.{part}" for part in ("draft", "head", "target")))
    packages |= {f"naive_speculate.{name}" for name in (*bundled, "drafters")}
    assert packages == set(PROJECT["tool"]["setuptools"]["packages"])


def test_the_version_is_written_once_and_types_are_shipped():
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {
        "attr": "naive_speculate.__version__"
    }
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["naive_speculate"]
    assert (ROOT / "naive_speculate" / "py.typed").is_file()


def test_requirements_are_exact_pins_within_the_packages_ranges_but_for_torch():
    ranges = {}
    for line in chain(
        PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()
    ):
        needed = Requirement(line)
        ranges[canonicalize_name(needed.name)] = needed.specifier
    pinned = {}
    for path in sorted(ROOT.glob("requirements*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line or line.startswith(("#", "-r")):
                continue
            needed = Requirement(line)
            name = canonicalize_name(needed.name)
            assert name not in pinned, f"{path.name}: {name} is named twice"
            *_, part = needed.specifier
            pinned[name] = part.version
            assert name == "torch" or (len(needed.specifier) == 1 and part.operator == "=="), (
                f"{path.name}: {line}"
            )
            if name == "torch":
                assert needed.specifier == ranges[name]
            elif name in ranges:
                assert ranges[name].contains(part.version), f"{path.name}: {line}"
    assert {
        canonicalize_name(Requirement(line).name) for line in PROJECT["project"]["dependencies"]
    } <= pinned.keys()
