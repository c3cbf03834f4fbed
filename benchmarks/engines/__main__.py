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

from benchmarks.engines import models
from benchmarks.engines.report import write_report
from benchmarks.engines.trial import HERE, EngineError, trial

ADAPTERS = {
    path.stem.strip("_").replace("_", "-"): path
    for path in sorted(HERE.glob("*.py"))
    if "# /// script" in path.read_text(encoding="utf-8")
}
RESULTS = HERE / "results"


def main() -> int:
    """Run the trials that the command line names. Returns 1 if an engine could not be tried."""
    parser = argparse.ArgumentParser(prog="benchmarks.engines", description="Try engines.")
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=", ".join(ADAPTERS))
    parser.add_argument("--work", type=Path, default=Path(".engines"), help="environments, logs")
    parser.add_argument("--smallest", type=float, default=0.08, help="smallest bias worth finding")
    options = parser.parse_args()
    if unknown := [name for name in options.engines if name not in ADAPTERS]:
        parser.error(f"unknown engine {unknown[0]!r}; there are {', '.join(ADAPTERS)}")
    options.work.mkdir(parents=True, exist_ok=True)
    if not (options.work / "models" / "tables.json").exists():  # the last of them
        models.write(options.work / "models")
    RESULTS.mkdir(exist_ok=True)
    failed = 0
    for name in options.engines or ADAPTERS:
        path = RESULTS / f"{name}.json"
        try:
            result = trial(
                ADAPTERS[name], options.work / "models", options.work, options.smallest, print
            )
        except EngineError as error:
            print(f"{name}: {error}; its output is in {options.work}", file=sys.stderr)
            failed = 1
            if path.exists():  # what was found before stays
                continue
            result = {"failed": str(error), "versions": {}, "greedy": {}, "sampled": {}}
        result |= {"date": datetime.now(UTC).date().isoformat(), "machine": machine()}
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: {path}")
    write_report(RESULTS)
    return failed


def machine() -> str:
    """The processor's name and number of cores, and Python's version."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").split("\n")
        cpu = next((line.partition(": ")[2] for line in lines if "model name" in line), cpu)
    return f"{cpu}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
