"""Compares replicas on Ray with this process: many clients on both, a replica killed during
runs, an update during runs.

    python -m benchmarks.cluster [--clients 100] [--replicas 2] [--tokens 96]

Starts its own Ray with CPU replicas of the bundled pair, and stops it at the end. All clients
send their requests, each with its own prompt and seed, at the same moment; each text must equal
that of a single run. Then the same again while one replica's process is killed, and while all
replicas are replaced.
"""

import argparse
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import ray
from rich.console import Console
from rich.table import Table

from benchmarks.load import BEGINNINGS, HEROES, late, prompt_of
from naive_speculate import SamplingParams, SpeculativeDecoder, Trace, load_pair
from naive_speculate.arguments import print_for_people
from naive_speculate.events import OUTPUT_KINDS, FinishReason
from naive_speculate.infer.threads import THREADS_VARIABLE, leave_cores_to
from naive_speculate.serving import Engine, LocalEngine, Request, Unavailable
from naive_speculate.serving.ray import cluster
from naive_speculate.serving.ray.app import DecoderArgs
from naive_speculate.serving.ray.engine import RayEngine

APP = "bundled"
DRAFTS = 5
SETTINGS = ("by the sea", "in the hills")


@dataclass
class Answer:
    """One client's run: its events, and the seconds until the first token and the end."""

    trace: Trace = field(default_factory=Trace)
    first_token: float | None = None
    seconds: float = 0.0
    lost: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended with a reported error."""
        return not self.lost and self.trace.events[-1].finish_reason == FinishReason.ERROR


def request_of(client: int, tokens: int) -> Request:
    """Each client's own prompt and seed."""
    kinds = len(BEGINNINGS) * len(HEROES)
    prompt = prompt_of(client)
    if client >= kinds:
        prompt = f"{prompt} {SETTINGS[client // kinds % len(SETTINGS)]}"
    params = SamplingParams(max_tokens=tokens, temperature=0.7, seed=client, ignore_eos=True)
    return Request(prompt, params, num_draft_tokens=DRAFTS)


def crowd(
    engine: Engine, clients: int, tokens: int, meanwhile: Callable[[], object] | None = None
) -> tuple[list[Answer], float]:
    """All clients at the same moment; `meanwhile` is called once a third of the runs have begun."""
    gate = threading.Barrier(clients + 1)
    answers = [Answer() for _ in range(clients)]

    def one(client: int) -> None:
        answer = answers[client]
        gate.wait()
        began = time.perf_counter()
        try:
            for events in engine.submit(request_of(client, tokens)):
                answer.trace.events += events
                if answer.first_token is None and any(
                    event.kind in OUTPUT_KINDS for event in events
                ):
                    answer.first_token = time.perf_counter() - began
        except Unavailable:
            answer.lost = True
        answer.lost = answer.lost or not answer.trace.events or answer.trace.finished is None
        answer.seconds = time.perf_counter() - began

    with ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(one, client) for client in range(clients)]
        gate.wait()
        began = time.perf_counter()
        if meanwhile is not None:
            while sum(answer.first_token is not None for answer in answers) < clients // 3:
                time.sleep(0.01)
            meanwhile()
        for future in futures:
            future.result()
    return answers, (
        max(answer.seconds for answer in answers)
        if meanwhile is None
        else time.perf_counter() - began
    )


def kill_one(engine: RayEngine) -> Callable[[], object]:
    """A function that kills a replica's process."""
    process, _ = engine.handle.broadcast("state").results(timeout_s=10)[
        0
    ]  # requested now, since a full replica answers late
    return partial(os.kill, process, signal.SIGKILL)


@contextmanager
def replicas(args: DecoderArgs) -> Iterator[RayEngine]:
    """The bundled pair on its own Ray, once all replicas run; both are stopped at the end."""
    cluster.start({APP: args}, num_cpus=args.min_replicas, object_store_memory=200 * 2**20)
    try:
        cluster.wait_until_ready(APP)
        wait_for_all(args)
        engine = RayEngine(APP)
        yield engine
        engine.close()
    finally:
        ray.shutdown()


def wait_for_all(args: DecoderArgs) -> None:
    """Wait until all replicas run."""
    while cluster.replicas_of(APP) != args.min_replicas:
        time.sleep(0.2)


def figures(answers: list[Answer], seconds: float, expected: list[str]) -> list[str]:
    """One column of the table."""
    firsts = sorted(answer.first_token for answer in answers if answer.first_token is not None)
    events = sum(len(answer.trace) for answer in answers)
    tokens = sum(len(answer.trace.token_ids) for answer in answers)
    whole = [
        (a.trace.text, text)
        for a, text in zip(answers, expected, strict=True)
        if not a.lost and not a.failed
    ]
    return [
        f"{events / seconds:.0f}",
        f"{tokens / seconds:.0f}",
        f"{statistics.median(firsts):.2f} s",
        f"{late(firsts):.2f} s",
        f"{sum(text == wanted for text, wanted in whole)} of {len(whole)}",
        str(sum(answer.failed for answer in answers)),
        str(sum(answer.lost for answer in answers)),
    ]


def main() -> None:
    """Measure and print."""
    print_for_people()
    parser = argparse.ArgumentParser(description="Compares replicas on Ray with this process.")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument(
        "--rows", type=int, default=16, help="rows of a replica, and of this process"
    )
    options = parser.parse_args()
    console = Console()
    os.environ.setdefault(THREADS_VARIABLE, "1")  # as a replica has
    decoder = SpeculativeDecoder(load_pair(device="cpu"))
    leave_cores_to(decoder.pair.target)
    requests = [request_of(client, options.tokens) for client in range(options.clients)]
    expected = [
        decoder.generate(str(r.prompt), r.params, num_draft_tokens=DRAFTS).text for r in requests
    ]

    columns: dict[str, list[str]] = {}
    retried: dict[str, str] = {}
    local = LocalEngine(decoder, max_rows=options.rows)
    crowd(local, 4, 16)
    columns["this process"] = figures(*crowd(local, options.clients, options.tokens), expected)
    local.close()

    args = DecoderArgs(
        max_rows=options.rows,
        min_replicas=options.replicas,
        max_replicas=options.replicas,
        drain_seconds=120,
    )
    changed = args.model_copy(update={"max_prompt_tokens": 500})
    with replicas(args) as engine:
        crowd(engine, 8 * options.replicas, 16)
        for column in (f"{options.replicas} replicas", "one killed", "all replaced"):
            before = engine.retried
            meanwhile = None
            if column == "one killed":
                meanwhile = kill_one(engine)
            elif column == "all replaced":
                meanwhile = partial(cluster.deploy, APP, changed)
            columns[column] = figures(
                *crowd(engine, options.clients, options.tokens, meanwhile), expected
            )
            retried[column] = str(engine.retried - before)
            wait_for_all(args)

    title = (
        f"{options.clients} clients at once, {options.tokens} tokens each, {options.rows} rows per"
        f" replica, k = {DRAFTS}"
    )
    table = Table("", *columns, title=title)
    rows = (
        "events/s",
        "tokens/s",
        "first token p50",
        "first token p95",
        "texts as alone",
        "ended with an error",
        "lost",
    )
    for number, row in enumerate(rows):
        table.add_row(row, *(column[number] for column in columns.values()))
    table.add_row("retried on another replica", *(retried.get(column, "") for column in columns))
    console.print(table)


if __name__ == "__main__":
    main()
