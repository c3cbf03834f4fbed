"""Try engines: `python -m benchmarks.engines [NAME …]`; each gets an environment of its own.

Results are written as JSON next to the adapters, with date and machine; `docs/engines.md` is made
from all results that are there.
"""

import argparse
import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.engines import models, smollm2
from benchmarks.engines.compare import compared
from benchmarks.engines.environments import EngineError
from benchmarks.engines.report import write_report
from benchmarks.engines.speed import speed
from benchmarks.engines.trial import HERE, PARTS, VERDICTS, trial

ADAPTERS = {path.stem.strip("_").replace("_", "-"): path for path in sorted(HERE.glob("[!_]*_.py"))}
RESULTS = HERE / "results"


def main() -> int:
    """Run the trials that the command line names. Returns 1 if a verdict is not what it was."""
    parser = argparse.ArgumentParser(prog="benchmarks.engines", description="Try engines.")
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=", ".join(ADAPTERS))
    parser.add_argument("--work", type=Path, default=Path(".engines"), help="environments, logs")
    parser.add_argument("--smallest", type=float, help="smallest bias worth finding")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="other parts stay")
    options = parser.parse_args()
    if unknown := [name for name in options.engines if name not in ADAPTERS]:
        parser.error(f"unknown engine {unknown[0]!r}; there are {', '.join(ADAPTERS)}")
    options.work.mkdir(parents=True, exist_ok=True)
    if not (options.work / "models" / models.PERFECT / "draft-f16.gguf").exists():  # the last
        models.write(options.work / "models")
    real = options.work / "smollm2"
    if "speed" in options.only and not (real / "prompts.json").exists():
        try:
            smollm2.write(real)
        except ValueError as error:  # SmolLM2 is neither here nor within reach
            print(f"speed is not measured: {error}", file=sys.stderr)
            options.only = [part for part in options.only if part != "speed"]
    RESULTS.mkdir(exist_ok=True)
    chosen = {name: ADAPTERS[name] for name in options.engines or ADAPTERS}
    lines, status = tried(chosen, RESULTS, options)
    write_report(RESULTS)
    print("", *lines, f"What pip and the engines printed is in {options.work}/*.log", sep="\n")
    return status


def tried(
    adapters: dict[str, Path], results: Path, options: argparse.Namespace
) -> tuple[list[str], int]:
    """Try engines one after the other and write their results. Returns a line for each, and 1 if
    a verdict is not what it was before."""
    lines: list[str] = []
    status = 0
    for name, script in adapters.items():
        path = results / f"{name}.json"
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        try:
            result = before | measured(script, before, options)
            result.pop("failed", None)
        except EngineError as error:
            result = when() | {"failed": str(error), "versions": {}, "greedy": {}, "sampled": {}}
        line, changed = compared(name, before, result)
        print(line)
        lines, status = [*lines, line], status | changed
        if "failed" in result and "failed" not in (before or result):
            continue  # what was found before stays
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return lines, status


def measured(script: Path, before: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The parts of an engine's results that the command line names; verdicts of one version are
    not mixed with those of another, and speeds have the versions and the date of their own trial.
    """
    parts = [part for part in options.only if part in VERDICTS]
    versions = before.get("versions", {})
    result: dict[str, Any] = {}
    if parts or not versions:
        places = (options.work / "models", options.work, options.smallest)
        result = trial(script, *places, parts, versions, print) | when()
    if "speed" in options.only:
        own = speed(script, options.work / "smollm2", options.work, print)
        result["speed"] = own and own | when()
    return result


def when() -> dict[str, str]:
    """Today's date, and the machine."""
    return {"date": datetime.now(UTC).date().isoformat(), "machine": machine()}


def machine() -> str:
    """The processor's name."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").split("\n")
        cpu = next((line.partition(": ")[2] for line in lines if "model name" in line), cpu)
    return cpu


if __name__ == "__main__":
    sys.exit(main())
