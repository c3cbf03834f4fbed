"""The engine whose replicas are Ray Serve's. Everything that needs Ray stands in this file, so that it is started once."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue

import pytest
import ray
from ray.serve.exceptions import DeploymentUnavailableError

from naive_speculate import SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import FinishReason
from naive_speculate.serving import Load, Request, Unavailable
from naive_speculate.serving.ray import cluster as ray_cluster
from naive_speculate.serving.ray.app import DecoderArgs
from naive_speculate.serving.ray.engine import RayEngine
from tests.serving.contract import LONG, PATIENCE, EngineContract
from ui.host.catalog import join_catalog
from ui.host.configuration import Configuration

os.environ.setdefault("SERVE_SLOW_STARTUP_WARNING_S", "300")  # else a replica that a busy machine starts slowly seems stuck
APP = "tiny"


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
    """Ray gives its own processes half a minute to begin, which cannot be changed; a busy machine may need more."""
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
        deadline = time.monotonic() + PATIENCE
        while any(load.running + load.waiting for load in (engine.load(), *states(engine).values())):
            if time.monotonic() > deadline:
                return False
        return True

    return free


class TestRayEngine(EngineContract):
    pass


def long_request(number: int, tokens: int) -> Request:
    return Request([1 + number, 2, 3], SamplingParams(max_tokens=tokens, seed=number), detail="none")


def read(engine: RayEngine, request: Request, begun: SimpleQueue[None] | None = None) -> Trace | None:
    """A run's trace, None for one that was lost; `begun` is called with its first events."""
    trace = Trace()
    try:
        for events in engine.submit(request):
            if begun is not None and not trace.events:
                begun.put(None)
            trace.events += events
    except Unavailable:
        return None
    return trace


def alone(decoder: SpeculativeDecoder, requests: list[Request]) -> list[list[int]]:
    """What each would give by itself, and gives in a batch."""
    found = decoder.generate([r.prompt for r in requests], [r.params for r in requests], detail="none")
    return [result.token_ids for result in found]


def states(engine: RayEngine) -> dict[int, Load]:
    """How busy each replica is, by its process."""
    return dict(engine.handle.broadcast("state").results(timeout_s=PATIENCE))


def one_with_waiting_runs(engine: RayEngine) -> int:
    """The process of a replica that has runs which have not begun."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for process, load in states(engine).items():
            if load.waiting:
                return process
    raise AssertionError("no run waits in a replica")


def test_nothing_is_lost_when_a_replica_dies(engine, saved_decoder):
    requests = [long_request(number, 300) for number in range(12)]
    begun: SimpleQueue[None] = SimpleQueue()
    with ThreadPoolExecutor(len(requests)) as pool:
        futures = [pool.submit(read, engine, request, begun) for request in requests]
        for _ in range(8):
            begun.get(timeout=PATIENCE)
        os.kill(one_with_waiting_runs(engine), signal.SIGKILL)
        traces = [future.result() for future in futures]
    assert engine.retried > 0
    assert None not in traces
    failed = 0
    for request, trace, expected in zip(requests, traces, alone(saved_decoder, requests), strict=True):
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
    cancels = [threading.Event() for _ in range(14)]
    streams = [engine.submit(long_request(number, LONG.max_tokens), cancel) for number, cancel in enumerate(cancels)]
    begun: SimpleQueue[None] = SimpleQueue()

    def finish(stream) -> Trace:
        trace = Trace(next(stream))
        begun.put(None)
        trace.events += [event for events in stream for event in events]
        return trace

    with ThreadPoolExecutor(len(streams)) as pool:
        futures = [pool.submit(finish, stream) for stream in streams]
        for _ in range(4):
            begun.get(timeout=PATIENCE)
        load = engine.load()
        assert load.running >= 4
        assert load.waiting > 0
        assert load.running + load.waiting == 14
        for cancel in cancels:
            cancel.set()
        traces = [future.result() for future in futures]
    assert {trace.events[-1].finish_reason for trace in traces} == {FinishReason.CANCELLED}
    assert engine.load().running == engine.load().waiting == 0


def test_too_many_that_wait_are_refused_with_a_line(cluster):
    engine = RayEngine(APP, max_waiting=2)
    with pytest.raises(Unavailable, match="the limit"):
        engine.submit(Request([1], SamplingParams(n=3)))
    engine.close()


def test_an_update_refuses_no_request(engine, ray_args, saved_decoder):
    requests = [long_request(number, 300) for number in range(2)]  # more would slow the new replicas down
    expected = alone(saved_decoder, requests)
    before = set(states(engine))
    updated = threading.Event()

    def visit(number: int) -> list[bool]:
        good = []
        while not updated.is_set():
            trace = read(engine, requests[number])
            good.append(trace is not None and trace.token_ids == expected[number])
        return good

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(visit, number) for number in range(2)]
        try:
            ray_cluster.deploy(APP, ray_args.model_copy(update={"max_rows": 6}))
            deadline = time.monotonic() + 5 * PATIENCE
            now = before
            while (len(now) != 2 or now & before) and time.monotonic() < deadline:
                read(engine, requests[0])
                with suppress(DeploymentUnavailableError):  # no replica for a moment; requests wait meanwhile
                    now = set(states(engine))
        finally:  # or the visitors never leave
            updated.set()
        results = [good for future in futures for good in future.result()]
    assert len(now) == 2
    assert not now & before
    assert len(results) > 4
    assert all(results)


def test_bad_input_is_one_line_at_the_start(cluster):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{free.getsockname()[1]}"
    for address, said in ((closed, "nothing answers"), ("ray://here:10001", "host:port"), ("nonsense", "host:port")):
        with pytest.raises(ray_cluster.ClusterError, match=said):
            ray_cluster.connect(address)
    with pytest.raises(ray_cluster.ClusterError, match="needs 4 GPU, the whole cluster has 0"):
        ray_cluster.deploy("greedy", DecoderArgs(gpus=4))
    with pytest.raises(ray_cluster.ClusterError, match="serve deploy"):
        ray_cluster.wait_until_ready("nowhere")


def test_the_page_offers_the_cluster_and_says_who_must_wait(engine):
    catalog = join_catalog(Configuration(queue_size=9), {APP: engine})
    assert (catalog.concurrency, catalog.load().replicas) == (engine.about.capacity + 9, engine.load().replicas)
    assert catalog.queue(APP) == ""
    streams = [engine.submit(long_request(number, LONG.max_tokens)) for number in range(engine.load().capacity)]
    assert "decoder slots are busy" in catalog.queue(APP)
    for stream in streams:
        stream.close()
    assert catalog.queue(APP) == ""
