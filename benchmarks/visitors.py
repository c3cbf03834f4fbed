"""Visitors per replica: a queueing model with measured rates, checked with simulated visitors.

    python -m benchmarks.visitors [--replicas 2] [--rows 4] [--tokens 64] [--think 2]
                                  [--visitors 8 16 32 48 64] [--seconds 20]

Measures the runs per second of each replica that decodes 1, 2, 4 … together, puts them into the
model of `benchmarks/queue_model.py`, and compares it with simulated visitors, for `--seconds`
each.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean, median

import numpy as np
from rich.table import Table

from benchmarks.measuring import Answer, follow, from_engine, options_of, output, together
from benchmarks.queue_model import Outlook, outlook
from benchmarks.replicas import replicas, request_of
from naive_speculate.serving import Engine
from naive_speculate.serving.ray.app import DecoderArgs

RATE_RUNS = 12


def measure_rates(engine: Engine, replicas: int, rows: int, tokens: int) -> list[float]:
    """Runs per second of one replica that decodes 1 … `rows` together while the others do the
    same, since they may share a machine; sizes between the measured ones are interpolated."""
    sizes = sorted({*(2**k for k in range(rows.bit_length()) if 2**k <= rows), rows})
    measured = []
    for size in sizes:
        runs = RATE_RUNS * replicas * size
        with ThreadPoolExecutor(replicas * size) as pool:
            began = time.perf_counter()
            requests = [request_of(client, tokens) for client in range(runs)]
            list(pool.map(lambda request: list(engine.submit(request)), requests))
            measured.append(runs / replicas / (time.perf_counter() - began))
    return [float(rate) for rate in np.interp(range(1, rows + 1), sizes, measured)]


def visit(
    engine: Engine, visitors: int, think: float, tokens: int, seconds: float
) -> tuple[Outlook, float]:
    """Simulate visitors; returns their figures and median time to the first token."""
    began = time.perf_counter()
    warm = began + seconds / 4
    visits: list[tuple[Answer, bool]] = []  # with whether no row was free

    def one(visitor: int) -> None:
        draws = random.Random(visitor)
        while True:
            time.sleep(draws.expovariate(1 / think))
            if time.perf_counter() > began + seconds:
                return
            load = engine.load()
            answer = follow(from_engine(engine, request_of(draws.randrange(100), tokens)))
            if warm < time.perf_counter() < began + seconds:
                visits.append((answer, load.running + load.waiting >= load.capacity))

    together(visitors, one)
    answers = [answer for answer, _ in visits]
    response, waited = fmean(a.seconds for a in answers), fmean(full for _, full in visits)
    met = Outlook(len(visits) / (seconds * 3 / 4), response, waited)
    return met, median(answer.first_token or 0.0 for answer in answers)


def main() -> None:
    """Measure and print."""
    crowds = [8, 16, 32, 48, 64]
    options = options_of(
        __doc__, replicas=2, rows=4, tokens=64, think=2.0, seconds=20.0, visitors=crowds
    )
    number, rows, tokens, think = options.replicas, options.rows, options.tokens, options.think
    args = DecoderArgs(max_rows=rows, min_replicas=number, max_replicas=number)
    title = f"{number} replicas of {rows} rows, {tokens} tokens per run, {think:g} s between"
    figures = ("runs/s", "model", "response", "model", "found no row", "model", "first token p50")
    table = Table("visitors", *figures, title=title)
    with replicas(args) as engine:
        measure_rates(engine, number, 2, 8)
        rates = measure_rates(engine, number, rows, tokens)
        for visitors in options.visitors:
            met, first = visit(engine, visitors, think, tokens, options.seconds)
            both = (met, outlook(visitors, think, rates, number))
            cells = [f"{one.per_second:.1f}" for one in both]
            cells += [f"{one.response:.2f} s" for one in both]
            cells += [f"{one.waiting:.0%}" for one in both]
            table.add_row(str(visitors), *cells, f"{first:.2f} s")
    shown = ", ".join(f"{size}: {rate:.1f}" for size, rate in enumerate(rates, 1))
    console = output(100)
    console.print(f"runs per second of one replica, by the number decoded together: {shown}")
    console.print(table)


if __name__ == "__main__":
    main()
