"""What `pip install .` takes along."""

import tomllib
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_of_the_library_is_installed():
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "naive_speculate").rglob("*.py")}
    packages = {".".join(folder.parts) for folder in folders}
    assert packages | {"naive_speculate.bundled_pair", "naive_speculate.drafters"} == set(
        PROJECT["tool"]["setuptools"]["packages"]
    )


def test_the_engine_never_imports_the_page():
    for path in (ROOT / "naive_speculate").rglob("*.py"):
        words = path.read_text(encoding="utf-8").split()
        for library in ("gradio", "plotly", "ui"):
            follows = [after for word, after in pairwise(words) if word in ("import", "from")]
            assert not any(name == library or name.startswith(f"{library}.") for name in follows), path
