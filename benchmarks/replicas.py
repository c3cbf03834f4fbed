"""Replicas of the bundled pair on Ray, and what their clients request."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import ray

from benchmarks.measuring import Answer, follow, from_engine, together
from benchmarks.prompts import prompt_of
from naive_speculate import SamplingParams
from naive_speculate.serving import Engine, Request
from naive_speculate.serving.ray import cluster
from naive_speculate.serving.ray.app import DecoderArgs
from naive_speculate.serving.ray.engine import RayEngine

APP = "bundled"
DRAFTS = 5


def request_of(client: int, tokens: int) -> Request:
    """Each client's own prompt and seed."""
    params = SamplingParams(max_tokens=tokens, temperature=0.7, seed=client, ignore_eos=True)
    return Request(prompt_of(client), params, num_draft_tokens=DRAFTS)


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


def crowd(
    engine: Engine, clients: int, tokens: int, meanwhile: Callable[[], object] | None = None
) -> tuple[list[Answer], float]:
    """All clients at the same moment; `meanwhile` is called once a third of the runs have begun."""
    begun: list[None] = []

    def one(client: int) -> Answer:
        return follow(from_engine(engine, request_of(client, tokens)), lambda: begun.append(None))

    def once_begun() -> None:
        while meanwhile and len(begun) < clients // 3:
            time.sleep(0.01)
        if meanwhile:
            meanwhile()

    return together(clients, one, once_begun)


def kill_one(engine: RayEngine) -> Callable[[], object]:
    """A function that kills a replica's process."""
    # requested now, since a full replica answers late
    process, _ = engine.handle.broadcast("state").results(timeout_s=10)[0]
    return partial(os.kill, process, signal.SIGKILL)
