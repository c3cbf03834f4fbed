"""Makes the environments in which engines run, one per adapter, with pinned versions."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

LARGE = ("torch", "transformers")  # packages that environments share
PACKAGES, SHARED = "lib/*/site-packages", "shared.pth"  # the latter names who has them
PIP = ("-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:")
ALONE = ("--no-deps", "--ignore-requires-python", "--no-compile")  # compiled as the adapter says
NPM = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "-E")


class EngineError(Exception):
    """An engine that cannot be installed, or ended; in one line."""


def requirements(script: Path) -> dict[str, Any]:
    """What an adapter states in its first lines (PEP 723): packages, and Python's version."""
    lines = script.read_text(encoding="utf-8").split("\n")
    first, last = lines.index("# /// script"), lines.index("# ///")
    return tomllib.loads("\n".join(line[2:] for line in lines[first + 1 : last]))


def interpreter(needs: dict[str, Any]) -> str:
    """A Python of the version that an adapter needs: this one, or the named one on the path."""
    version = needs.get("requires-python", "").removeprefix(">=")
    if not version or sys.version_info >= tuple(map(int, version.split("."))):
        return sys.executable
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "--version"], capture_output=True).returncode:
        raise EngineError(f"it needs Python {version}, and there is no python{version} here")
    return python


def environment(script: Path, work: Path) -> Path:
    """A Python with the adapter's requirements; made once. Raises `EngineError`."""
    folder, needs = work / "environments" / script.stem, requirements(script)
    python, made = folder / "bin" / "python", folder / "made.json"
    packages = needs.get("dependencies", [])
    known = json.loads(made.read_text(encoding="utf-8")) if made.exists() else None
    if known == needs and still_shared(folder, packages):
        return python
    own = needs.get("tool", {}).get("engines", {})
    alone, npm = own.get("without-dependencies", []), own.get("npm", [])
    with (work / f"{script.stem}.log").open("w", encoding="utf-8") as log:
        run = partial(subprocess.run, check=True, stdout=log, stderr=log)
        try:
            made.unlink(missing_ok=True)
            run([interpreter(needs), "-m", "venv", "--clear", str(folder)])
            share(folder, packages)
            for options, group in (([], packages), (ALONE, alone)):
                if group:
                    run([str(python), *PIP, *options, *group])
            if npm:
                run([*NPM, *npm], cwd=folder)
        except subprocess.CalledProcessError as error:
            names = " ".join([*packages, *alone, *npm])
            raise EngineError(
                f"{names} cannot be installed ({error.cmd[0]} ended with {error.returncode})"
            ) from None
        except FileNotFoundError as error:
            raise EngineError(f"it needs {error.filename}, which is not on the path") from None
    made.write_text(json.dumps(needs), encoding="utf-8")
    return python


def share(folder: Path, packages: list[str]) -> None:
    """Let an environment find the large packages of another one."""
    if (other := next(holders(folder, packages), None)) is not None:
        own = next(folder.glob(PACKAGES))
        (own / SHARED).write_text(f"{other}\n", encoding="utf-8")


def still_shared(folder: Path, packages: list[str]) -> bool:
    """Whether the environment whose packages this one shares still has them: it may have been made
    once more."""
    files = folder.glob(f"{PACKAGES}/{SHARED}")
    names = [file.read_text(encoding="utf-8").strip() for file in files]
    return all(Path(name) in holders(folder, packages) for name in names)


def holders(folder: Path, packages: list[str]) -> Iterator[Path]:
    """The packages of environments that pin the same versions of the large ones, and have these
    themselves: Python doesn't follow from one `SHARED` to the next."""
    large = {one for one in packages if one.partition("==")[0] in LARGE}
    own = next(folder.glob(PACKAGES), None)
    for made in sorted(folder.parent.glob("*/made.json")) if own and large else ():
        pinned = json.loads(made.read_text(encoding="utf-8")).get("dependencies", [])
        for its in made.parent.glob(PACKAGES):
            same = own is not None and its.parent.name == own.parent.name
            if same and large <= set(pinned) and not (its / SHARED).exists():
                yield its.resolve()
