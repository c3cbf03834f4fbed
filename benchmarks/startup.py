"""Start-up time of the page, from `python app.py` on.

    python -m benchmarks.startup [--runs 5]

Prints medians: wall time, and the process's CPU time, which other programs disturb less.
"""

import os
import platform
import resource
import statistics
import time

from benchmarks.measuring import options_of
from benchmarks.server import Server


def start() -> tuple[float, float]:
    """Start and end the page once; returns the seconds until it answered, and the CPU time of
    the process."""
    before, began = _cpu_of_children(), time.perf_counter()
    with Server(NAIVE_SPECULATE_PAIRS=""):
        seconds = time.perf_counter() - began
    return seconds, _cpu_of_children() - before


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print both medians."""
    runs = options_of(__doc__, runs=5).runs
    clock, cpu = zip(*(start() for _ in range(runs)), strict=True)
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, median of {runs}"
        " starts:"
    )
    print(
        f"ready after {statistics.median(clock):.1f} s; {statistics.median(cpu):.1f} s of CPU time,"
        " shutdown included"
    )


if __name__ == "__main__":
    main()
