"""Visitors per replica: a queueing model with measured rates, checked with simulated visitors.

    python -m benchmarks.visitors [--replicas 2] [--rows 4] [--tokens 64] [--think 2] [--visitors
    8 16 32 48 64]

Measures the runs per second of each replica that decodes 1, 2, 4 … together. The model is a
closed queue: each of N visitors thinks for an exponentially distributed time, then waits for a
run. With n runs in the system the replicas end `replicas * rate(n / replicas)` per second; the
rate is constant once all rows are taken. This birth-death chain is solved exactly; then N
visitors are simulated.
"""

import argparse
import random
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cluster import replicas, request_of
from naive_speculate.arguments import print_for_people
from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.serving import Engine
from naive_speculate.serving.ray.app import DecoderArgs

RATE_RUNS = 12


@dataclass(frozen=True)
class Outlook:
    """Mean figures of the visitors.

    Attributes:
        per_second: Finished runs per second.
        response: Seconds from the request to its end.
        waiting: Share of runs that find no free row.
    """

    per_second: float
    response: float
    waiting: float


def outlook(visitors: int, think: float, rates: Sequence[float], replicas: int) -> Outlook:
    """Solve the model.

    Args:
        visitors: Number of visitors.
        think: Mean seconds between an answer and the next request.
        rates: Runs per second of one replica that decodes 1, 2, … together, up to its number of
            rows.
        replicas: Number of replicas.
    """

    def rate(running: int) -> float:
        return replicas * float(np.interp(running / replicas, range(len(rates) + 1), [0.0, *rates]))

    def chances(population: int) -> list[float]:
        weights = [1.0]
        for running in range(1, population + 1):
            weights.append(weights[-1] * (population - running + 1) / think / rate(running))
        return [weight / sum(weights) for weight in weights]

    per_second = sum(
        chance * rate(running) for running, chance in enumerate(chances(visitors)) if running
    )
    # A new request sees the system without its own visitor (the arrival theorem).
    waiting = sum(chances(visitors - 1)[replicas * len(rates) :])
    return Outlook(per_second, visitors / per_second - think, waiting)


def measure_rates(engine: Engine, replicas: int, rows: int, tokens: int) -> list[float]:
    """Runs per second of one replica that decodes 1 … `rows` together while the others do the
    same, since they may share a machine.

    Sizes between the measured ones are interpolated.
    """
    sizes = sorted({*(2**k for k in range(rows.bit_length()) if 2**k <= rows), rows})
    found = {}
    for size in sizes:
        with ThreadPoolExecutor(replicas * size) as pool:
            runs = RATE_RUNS * replicas * size
            began = time.perf_counter()
            list(
                pool.map(
                    lambda client: [None for _ in engine.submit(request_of(client, tokens))],
                    range(runs),
                )
            )
            found[size] = runs / replicas / (time.perf_counter() - began)
    return [
        float(rate)
        for rate in np.interp(range(1, rows + 1), sizes, [found[size] for size in sizes])
    ]


def visit(
    engine: Engine, visitors: int, think: float, tokens: int, seconds: float
) -> tuple[Outlook, float]:
    """Simulate visitors; returns their figures and median time to the first token."""
    began = time.perf_counter()
    warm = began + seconds / 4
    answers: list[tuple[float, float]] = []
    waited: list[bool] = []
    lock = threading.Lock()

    def one(visitor: int) -> None:
        draws = random.Random(visitor)
        while True:
            time.sleep(draws.expovariate(1 / think))
            requested = time.perf_counter()
            if requested > began + seconds:
                return
            load = engine.load()
            first = 0.0
            for events in engine.submit(request_of(draws.randrange(100), tokens)):
                if not first and any(event.kind in OUTPUT_KINDS for event in events):
                    first = time.perf_counter() - requested
            ended = time.perf_counter()
            if warm < ended < began + seconds:
                with lock:
                    answers.append((ended - requested, first))
                    waited.append(load.running + load.waiting >= load.capacity)

    with ThreadPoolExecutor(visitors) as pool:
        list(pool.map(one, range(visitors)))
    met = Outlook(
        len(answers) / (seconds * 3 / 4),
        statistics.mean(response for response, _ in answers),
        statistics.mean(waited),
    )
    return met, statistics.median(first for _, first in answers)


def main() -> None:
    """Measure and print."""
    print_for_people()
    parser = argparse.ArgumentParser(description="Visitors per replica.")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--rows", type=int, default=4, help="rows of a replica")
    parser.add_argument("--tokens", type=int, default=64, help="length of a run")
    parser.add_argument(
        "--think",
        type=float,
        default=2.0,
        help="mean seconds between an answer and the next request",
    )
    parser.add_argument("--visitors", type=int, nargs="+", default=[8, 16, 32, 48, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each simulation")
    options = parser.parse_args()
    console = Console()
    args = DecoderArgs(
        max_rows=options.rows, min_replicas=options.replicas, max_replicas=options.replicas
    )
    headings = (
        "visitors",
        "runs/s",
        "model",
        "response",
        "model",
        "found no row",
        "model",
        "first token p50",
    )
    title = (
        f"{options.replicas} replicas of {options.rows} rows, {options.tokens} tokens per run,"
        f" {options.think:g} s between"
    )
    table = Table(*headings, title=title)
    with replicas(args) as engine:
        measure_rates(engine, options.replicas, 2, 8)
        rates = measure_rates(engine, options.replicas, options.rows, options.tokens)
        for visitors in options.visitors:
            met, first = visit(engine, visitors, options.think, options.tokens, options.seconds)
            model = outlook(visitors, options.think, rates, options.replicas)
            table.add_row(
                str(visitors), f"{met.per_second:.1f}", f"{model.per_second:.1f}",
                f"{met.response:.2f} s", f"{model.response:.2f} s",
                f"{met.waiting:.0%}", f"{model.waiting:.0%}", f"{first:.2f} s",
            )  # fmt: skip
    shown = ", ".join(f"{size}: {rate:.1f}" for size, rate in enumerate(rates, 1))
    console.print(f"runs per second of one replica, by the number decoded together: {shown}")
    console.print(table)


if __name__ == "__main__":
    main()
