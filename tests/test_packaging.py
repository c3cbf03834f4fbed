"""What `pip install .` takes along."""

import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from naive_speculate import __version__

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_of_the_library_is_installed():
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "naive_speculate").rglob("*.py")}
    packages = {".".join(folder.parts) for folder in folders}
    assert packages | {"naive_speculate.bundled_pair", "naive_speculate.drafters"} == set(
        PROJECT["tool"]["setuptools"]["packages"]
    )


def test_the_version_is_written_once_and_types_are_shipped():
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "naive_speculate.__version__"}
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["naive_speculate"]
    assert (ROOT / "naive_speculate" / "py.typed").is_file()


def test_requirements_are_exact_pins_within_the_packages_ranges_but_for_torch():
    ranges = {}
    for line in chain(PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()):
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
            (*_, part) = needed.specifier
            pinned[name] = part.version
            assert name == "torch" or (len(needed.specifier) == 1 and part.operator == "=="), f"{path.name}: {line}"
            if name == "torch":
                assert needed.specifier == ranges[name]
            elif name in ranges:
                assert ranges[name].contains(part.version), f"{path.name}: {line}"
    assert {canonicalize_name(Requirement(line).name) for line in PROJECT["project"]["dependencies"]} <= pinned.keys()
