"""The wheel works with the lowest and with the highest versions that it allows. Needs the package
index; torch and what runs tests are borrowed, not downloaded."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NEEDED = {
    canonicalize_name(needed.name): needed for needed in map(Requirement, PROJECT["dependencies"])
}
PIP, QUIET = (sys.executable, "-m", "pip"), "--disable-pip-version-check"
RECURRENT = "tests/models/test_recurrent.py"
PROGRAM = """
from importlib.metadata import version
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.__main__ import main
print(version("transformers"), version("numpy"))
for executor in ("torch", "transformers"):
    decoder = SpeculativeDecoder(load_pair(executor=executor))
    params = SamplingParams(max_tokens=12, temperature=0)
    drafted = decoder.generate("Once upon a time", params)
    plain = decoder.generate("Once upon a time", params, num_draft_tokens=0)
    print(drafted.token_ids == plain.token_ids, len(drafted.token_ids))
print(main(["generate", "Once upon a time", "--max-tokens", "5", "--json"]))
"""


def lowest(needed: Requirement) -> str:
    (bound,) = [part.version for part in needed.specifier if part.operator in (">=", "==")]
    return bound


def borrow(name: str, site: Path, borrowed: set[str]) -> None:
    """Links an installed distribution, and what it needs, into another environment, unless the
    test installs that itself."""
    if name in borrowed or (name in NEEDED and name != "torch"):
        return
    borrowed.add(name)
    found = distribution(name)
    for top in {
        Path(str(path)).parts[0] for path in found.files or () if not str(path).startswith("..")
    } - {"__pycache__"}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(found.locate_file(top))))
    for line in requires(name) or ():
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            borrow(canonicalize_name(needed.name), site, borrowed)


def run(*command: str, cwd: Path) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, (
        f"{' '.join(command)[:200]} failed; is the package index reachable?\n{done.stderr[-2000:]}"
    )
    return done.stdout


@pytest.fixture(scope="module", params=["lowest", "highest"])
def environment(tmp_path_factory, request):
    """An environment with this wheel, the lowest or highest versions of all that it names, and the
    torch of this one.

    Its libraries are kept in pytest's cache, under a name that changes with their versions; the
    highest ones for a day.
    """
    lines = [f"{name}=={lowest(needed)}" for name, needed in NEEDED.items() if name != "torch"]
    if request.param == "highest":
        lines = [datetime.now(UTC).date().isoformat()]
    key = hashlib.sha256(
        "\n".join([sys.version, sys.prefix, distribution("torch").version, *lines]).encode()
    ).hexdigest()[:12]
    folder = Path(request.config.cache.mkdir("versions")) / key
    complete = folder / "complete"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    source = tmp_path_factory.mktemp("source")
    for name in ("naive_speculate", "assets", "docs", "pyproject.toml", "LICENSE"):
        (source / name).symlink_to(ROOT / name)  # what a build leaves stays out of the repository
    run(*PIP, "wheel", "-q", "--no-deps", "--wheel-dir", "..", ".", cwd=source)
    (wheel,) = source.parent.glob("*.whl")
    python = str(folder / "venv" / "bin" / "python")
    pip = (*PIP, "--python", python, "install", "-q", "--no-compile", QUIET)
    if not complete.exists():
        run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=folder)
        site = Path(
            run(
                python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
            ).strip()
        )
        for name in ("torch", "pytest", "pytest-timeout"):
            borrow(name, site, set())
        bounds = lines if request.param == "lowest" else []
        (folder / "bounds.txt").write_text("\n".join(bounds) + "\n")
        run(*pip, str(wheel), "-c", "bounds.txt", cwd=folder)
        complete.touch()
    else:
        run(*pip, "--force-reinstall", "--no-deps", str(wheel), cwd=folder)
    return folder


def test_every_library_that_is_imported_is_declared():
    shown = subprocess.run(
        ["git", "ls-files", "naive_speculate/*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    source = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in shown.stdout.split())
    names = re.findall(
        r"^ *(?:from (\w+)[\w.]* import|import (\w+)[\w.]*(?: as \w+)?$)", source, re.MULTILINE
    )
    imported = (
        {name or other for name, other in names} - {"naive_speculate"} - sys.stdlib_module_names
    )
    optional = {
        canonicalize_name(Requirement(line).name)
        for lines in PROJECT["optional-dependencies"].values()
        for line in lines
    }
    modules = {"pydantic_core": "pydantic"}
    declared = {canonicalize_name(modules.get(name, name)) for name in imported}
    assert declared <= NEEDED.keys() | optional, declared - NEEDED.keys() - optional


def test_the_wheel_generates_and_recurrent_models_roll_back(environment):
    python = str(environment / "venv" / "bin" / "python")
    versions, *runs, _ = run(python, "-c", PROGRAM, cwd=environment).splitlines()
    if (environment / "bounds.txt").read_text().strip():
        assert versions.split() == [
            f"{lowest(NEEDED['transformers'])}.0",
            f"{lowest(NEEDED['numpy'])}.0.0",
        ]
    assert runs[:2] == ["True 12"] * 2
    assert json.loads(runs[-1])["kind"] == "finished"
    families = "fresh_forward and (falcon_mamba or mamba2 or qwen3_next)"
    tests = (*("-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider"), RECURRENT)
    assert "3 passed" in run(python, *tests, "-k", families, cwd=ROOT)
