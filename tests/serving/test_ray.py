"""What only an engine with replicas must do: bear that they die and are replaced, and say at the start what is wrong."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from app import main
from naive_speculate import SamplingParams, Trace
from naive_speculate.events import FinishReason
from naive_speculate.serving import Load, Request, Unavailable, ray_cluster
from naive_speculate.serving.ray_app import DecoderArgs
from naive_speculate.serving.ray_engine import RayEngine
from tests.serving.conftest import APP
from ui.host import join_offer
from ui.hosting import Hosting
from ui.settings import Settings


@pytest.fixture
def engine(cluster):
    made = RayEngine(APP, cluster)
    yield made
    made.close()


def long_request(number: int, tokens: int) -> Request:
    return Request([1 + number, 2, 3], SamplingParams(max_tokens=tokens, seed=number), detail="none")


def read(engine: RayEngine, request: Request) -> Trace | None:
    """A run's trace; None for one that was lost."""
    trace = Trace()
    try:
        for events in engine.submit(request):
            trace.events += events
    except Unavailable:
        return None
    return trace


def states(engine: RayEngine) -> dict[int, Load]:
    """How busy each replica is, by its process."""
    return dict(engine.handle.broadcast("state").results(timeout_s=5))


def test_nothing_is_lost_when_a_replica_dies(engine, saved_decoder):
    requests = [long_request(number, 600) for number in range(14)]
    process = next(iter(states(engine)))  # a full replica answers late
    with ThreadPoolExecutor(len(requests)) as pool:
        futures = [pool.submit(read, engine, request) for request in requests]
        deadline = time.monotonic() + 10
        while engine.load().running < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)  # each replica has one more by now, of which nothing was read
        os.kill(process, signal.SIGKILL)
        traces = [future.result() for future in futures]
    assert engine.retried > 0
    assert None not in traces
    failed = 0
    for request, trace in zip(requests, traces, strict=True):
        alone = saved_decoder.generate(request.prompt, request.params, detail="none").token_ids
        last = trace.events[-1]
        if last.finish_reason == FinishReason.ERROR:
            failed += 1
            assert "Run it again" in last.message
            assert trace.token_ids == alone[: len(trace.token_ids)]
            assert last.metrics == trace.metrics.to_dict()
            trace = read(engine, request)
        assert trace.token_ids == alone
    assert 0 < failed <= 4
    assert engine.load().ready


def test_a_request_waits_for_a_full_cluster_and_can_be_cancelled_meanwhile(engine):
    cancels = [threading.Event() for _ in range(14)]
    streams = [engine.submit(long_request(number, 3000), cancel) for number, cancel in enumerate(cancels)]
    with ThreadPoolExecutor(len(streams)) as pool:
        futures = [pool.submit(lambda stream: Trace(event for events in stream for event in events), s) for s in streams]
        deadline = time.monotonic() + 5
        while engine.load().running < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        load = engine.load()
        assert load.running >= 4
        assert load.waiting > 0
        assert load.running + load.waiting == 14
        began = time.monotonic()
        for cancel in cancels:
            cancel.set()
        traces = [future.result() for future in futures]
    assert time.monotonic() - began < 1
    assert {trace.events[-1].finish_reason for trace in traces} == {FinishReason.CANCELLED}
    assert engine.load().running == engine.load().waiting == 0


def test_too_many_that_wait_are_refused_with_a_line(cluster):
    engine = RayEngine(APP, cluster, max_waiting=2)
    with pytest.raises(Unavailable, match="as many as may"):
        engine.submit(Request([1], SamplingParams(n=3)))
    engine.close()


def test_an_update_refuses_no_request(engine, ray_args, saved_decoder):
    requests = [long_request(number, 300) for number in range(4)]
    expected = [saved_decoder.generate(r.prompt, r.params, detail="none").token_ids for r in requests]
    before = set(states(engine))
    updated = threading.Event()

    def visit(number: int) -> list[bool]:
        good = []
        while not updated.is_set():
            trace = read(engine, requests[number])
            good.append(trace is not None and trace.token_ids == expected[number])
        return good

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(visit, number) for number in range(4)]
        ray_cluster.deploy(APP, ray_args.model_copy(update={"max_rows": 6}))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            now = set(states(engine))
            if len(now) == 2 and not now & before:
                break
            time.sleep(0.2)
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
    with pytest.raises(ray_cluster.ClusterError, match="asks for 4 GPU, the whole cluster has 0"):
        ray_cluster.deploy("greedy", DecoderArgs(gpus=4))
    with pytest.raises(ray_cluster.ClusterError, match="serve deploy"):
        ray_cluster.wait_until_ready("nowhere")


def test_the_page_offers_the_cluster_and_tells_who_must_wait(engine):
    offer = join_offer(Hosting(queue_size=9), {APP: engine})
    assert (offer.concurrency, offer.load().replicas) == (engine.load().capacity + 9, engine.load().replicas)
    settings = Settings(prompt="w1", pair=APP)
    assert offer.queue(settings) == ""
    streams = [engine.submit(long_request(number, 3000)) for number in range(engine.load().capacity)]
    assert "places are taken" in offer.queue(settings)
    for stream in streams:
        stream.close()
    assert offer.queue(settings) == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--engine", "ray", "--ray-address", "nonsense"], "host:port"),
        (["--ray-address", "10.0.0.1:6379"], "--engine ray"),
        (["--engine", "spark"], "invalid choice"),
    ],
)
def test_a_wrong_engine_is_one_line_and_status_2(capsys, given, said):
    try:
        status = main(given)
    except SystemExit as ended:
        status = ended.code
    lines = capsys.readouterr().err.splitlines()
    assert status == 2
    assert len(lines) == 1
    assert said in lines[0]


def test_the_local_engine_needs_no_ray():
    code = "import sys, naive_speculate.serving; sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_events_travel_light_and_unchanged(saved_decoder):
    events = list(saved_decoder.stream([1, 2, 3], SamplingParams(max_tokens=30, seed=1)))
    data = pickle.dumps(events)
    assert [event.to_dict() for event in pickle.loads(data)] == [event.to_dict() for event in events]
    assert len(data) < 0.5 * len(Trace(events).to_jsonl())
