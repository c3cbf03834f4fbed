"""The engine whose replicas are Ray Serve's. Everything that needs Ray stands in this file, so
that it is started once."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

import pytest
import ray
from ray.serve.exceptions import DeploymentUnavailableError

from naive_speculate import SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import Event, FinishReason
from naive_speculate.serving import Load, Request, Unavailable
from naive_speculate.serving.protocol import Reader
from naive_speculate.serving.ray import cluster as ray_cluster
from naive_speculate.serving.ray.app import DecoderArgs
from naive_speculate.serving.ray.engine import RayEngine
from tests.programs import refusal
from tests.serving.contract import LONG, PATIENCE, EngineContract, rest_of
from ui.host.catalog import join_catalog
from ui.host.configuration import Configuration

# else a replica that a busy machine starts slowly seems stuck
os.environ.setdefault("SERVE_SLOW_STARTUP_WARNING_S", "300")
APP = "tiny"
T = TypeVar("T")


@pytest.fixture(scope="module")
def ray_args(saved_pair) -> DecoderArgs:
    return DecoderArgs(
        target=str(saved_pair / "target"),
        draft=str(saved_pair / "draft"),
        max_rows=4,
        min_replicas=2,
        max_replicas=2,
        drain_seconds=30,
    )


@pytest.fixture(scope="module")
def cluster(ray_args) -> Iterator[None]:
    start({APP: ray_args})
    ray_cluster.wait_until_ready(APP, 300)
    yield
    ray.shutdown()


def start(applications: dict[str, DecoderArgs], tries: int = 4) -> None:
    """Ray gives its own processes half a minute to begin, which cannot be changed; a busy
    machine may need more."""
    try:
        ray_cluster.start(applications, num_cpus=2, object_store_memory=100 * 2**20)
    except ray_cluster.ClusterError as error:
        if tries == 1 or "timed out during startup" not in str(error):
            raise
        start(applications, tries - 1)


@pytest.fixture
def engine(cluster):
    made = RayEngine(APP)
    yield made
    made.close()


@pytest.fixture
def alone_decoder(saved_decoder):
    return saved_decoder


@pytest.fixture
def all_free():
    def free(engine: RayEngine) -> bool:
        """Asks the replicas themselves, again as soon as they have answered."""
        return wait_for(
            lambda: (
                not any(
                    load.running + load.waiting
                    for load in (engine.load(), *states(engine).values())
                )
            )
        )

    return free


def wait_for(look: Callable[[], T], seconds: float = PATIENCE) -> T:
    """What `look` finds as soon as that is true, or at the end of that time."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        pass
    return found


class TestRayEngine(EngineContract):
    pass


def long_request(number: int, tokens: int) -> Request:
    return Request(
        [1 + number, 2, 3], SamplingParams(max_tokens=tokens, seed=number), detail="none"
    )


def read(
    engine: RayEngine,
    request: Request,
    begun: SimpleQueue[None] | None = None,
    cancel: threading.Event | None = None,
) -> Trace | None:
    """A run's trace, None for one that was lost; `begun` gets something with its first events."""
    trace = Trace()
    try:
        for events in engine.submit(request, cancel):
            if begun is not None and not trace.events:
                begun.put(None)
            trace.events += events
    except Unavailable:
        return None
    return trace


def alone(decoder: SpeculativeDecoder, requests: list[Request]) -> list[list[int]]:
    """What each would give by itself, and gives in a batch."""
    found = decoder.generate(
        [r.prompt for r in requests], [r.params for r in requests], detail="none"
    )
    return [result.token_ids for result in found]


def states(engine: RayEngine) -> dict[int, Load]:
    """How busy each replica is, by its process."""
    return dict(engine.handle.broadcast("state").results(timeout_s=PATIENCE))


def test_nothing_is_lost_when_a_replica_dies(engine, saved_decoder):
    requests = [long_request(number, 300) for number in range(12)]
    begun: SimpleQueue[None] = SimpleQueue()
    with ThreadPoolExecutor(len(requests)) as pool:
        futures = [pool.submit(read, engine, request, begun) for request in requests]
        for _ in range(8):
            begun.get(timeout=PATIENCE)
        process = wait_for(
            lambda: next(
                (process for process, load in states(engine).items() if load.waiting), None
            )
        )
        os.kill(process, signal.SIGKILL)
        traces = [future.result() for future in futures]
    assert engine.retried > 0
    assert None not in traces
    failed = 0
    for request, trace, expected in zip(
        requests, traces, alone(saved_decoder, requests), strict=True
    ):
        last = trace.events[-1]
        if last.finish_reason == FinishReason.ERROR:
            failed += 1
            assert "Run it again" in last.message
            assert trace.token_ids == expected[: len(trace.token_ids)]
            assert last.metrics == trace.metrics.to_dict()
            trace = read(engine, request)
        assert trace.token_ids == expected
    assert 0 < failed <= 4
    assert engine.load().ready


def test_a_request_waits_for_a_full_cluster_and_can_be_cancelled_meanwhile(engine):
    cancel, begun = threading.Event(), SimpleQueue[None]()
    with ThreadPoolExecutor(14) as pool:
        runs = [
            pool.submit(read, engine, long_request(number, LONG.max_tokens), begun, cancel)
            for number in range(14)
        ]
        for _ in range(4):
            begun.get(timeout=PATIENCE)
        load = wait_for(lambda: (load := engine.load()).running + load.waiting == 14 and load)
        assert load.running >= 4
        assert load.waiting > 0
        cancel.set()
        traces = [run.result() for run in runs]
    assert {trace.events[-1].finish_reason for trace in traces} == {FinishReason.CANCELLED}
    assert engine.load().running == engine.load().waiting == 0


def test_readers_take_turns_and_the_one_with_most_waiting_runs_makes_room(cluster):
    engine, ends = RayEngine(APP, max_waiting=3), SimpleQueue[Exception | None]()
    cancels = [threading.Event() for _ in range(2 * engine.load().capacity + 3)]
    begun: SimpleQueue[None] = SimpleQueue()

    def receive(item) -> None:
        if isinstance(item, Exception):
            ends.put(item)
        elif item and item[0].kind == "started":
            begun.put(None)

    many, other = Reader("many"), Reader("other")
    for number, cancel in enumerate(cancels):
        engine.start(long_request(number, LONG.max_tokens), cancel, receive, many)
    held = engine.waiting_before(many) - engine.waiting_before(other)
    assert held == 3, "the other reader was not served yet"
    come: SimpleQueue[list[Event] | Exception | None] = SimpleQueue()
    engine.start(long_request(0, 4), threading.Event(), come.put, other)
    assert "Too many of your runs are waiting" in str(ends.get(timeout=PATIENCE))
    begun.get(timeout=PATIENCE)
    cancels[0].set()  # a row is free, and it is the turn of the other reader
    assert sum(map(len, rest_of(come))) > 0
    engine.close()


def test_an_update_refuses_no_request(engine, ray_args, saved_decoder):
    # more would slow the new replicas down
    requests = [long_request(number, 300) for number in range(2)]
    expected = alone(saved_decoder, requests)
    before = set(states(engine))
    updated = threading.Event()

    def visit(number: int) -> list[bool]:
        good = []
        while not updated.is_set():
            trace = read(engine, requests[number])
            good.append(trace is not None and trace.token_ids == expected[number])
        return good

    def replaced() -> bool:
        read(engine, requests[0])
        with suppress(
            DeploymentUnavailableError
        ):  # no replica for a moment; requests wait meanwhile
            now = set(states(engine))
            return len(now) == 2 and not now & before
        return False

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(visit, number) for number in range(2)]
        try:
            ray_cluster.deploy(APP, ray_args.model_copy(update={"max_rows": 6}))
            assert wait_for(replaced, 5 * PATIENCE)
        finally:  # or the visitors never leave
            updated.set()
        results = [good for future in futures for good in future.result()]
    assert len(results) > 4
    assert all(results)


def test_bad_input_and_too_many_runs_are_refused_in_one_line(cluster):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{free.getsockname()[1]}"
    for address, said in (
        (closed, "nothing answers"),
        ("ray://here:10001", "host:port"),
        ("nonsense", "host:port"),
    ):
        with pytest.raises(ray_cluster.ClusterError, match=said):
            ray_cluster.connect(address)
    assert said in refusal("app", ["--engine", "ray", "--ray-address", address])
    with pytest.raises(ray_cluster.ClusterError, match="needs 4 GPU, the whole cluster has 0"):
        ray_cluster.deploy("greedy", DecoderArgs(gpus=4))
    with pytest.raises(ray_cluster.ClusterError, match="serve deploy"):
        ray_cluster.wait_until_ready("nowhere")
    engine = RayEngine(APP, max_waiting=2)
    with pytest.raises(Unavailable, match="the limit"):
        engine.submit(Request([1], SamplingParams(n=3)))
    engine.close()


def test_the_page_offers_the_cluster_and_says_who_must_wait(engine):
    catalog = join_catalog(Configuration(queue_size=9), {APP: engine})
    assert catalog.load().replicas == engine.load().replicas
    assert catalog.queue(APP) == ""
    streams = [
        engine.submit(long_request(number, LONG.max_tokens))
        for number in range(engine.load().capacity)
    ]
    assert "decoder slots are busy" in catalog.queue(APP)
    for stream in streams:
        stream.close()
    assert catalog.queue(APP) == ""
