"""What every engine does, whichever way it decodes: the page cannot tell them apart."""

import multiprocessing
import os
import re
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from naive_speculate import SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import Event, EventKind, FinishReason
from naive_speculate.serving import Engine, Load, LocalEngine, Request, SoloEngine, Unavailable, ray_cluster
from naive_speculate.serving.ray_app import DecoderArgs
from naive_speculate.serving.ray_engine import RayEngine
from tests.serving.conftest import APP
from ui.host import join_offer
from ui.hosting import Hosting
from ui.settings import Settings

LONG = SamplingParams(max_tokens=2000, seed=3)


@pytest.fixture(params=["local", "solo", "solo, forked", "ray"])
def engine(request, tiny_decoder):
    if request.param == "local":
        made = LocalEngine(tiny_decoder, max_rows=4)
    elif request.param == "ray":
        made = RayEngine(APP, request.getfixturevalue("cluster"))
    else:
        made = SoloEngine(tiny_decoder, wrap=in_a_fork if "forked" in request.param else None, max_rows=4)
    yield made
    made.close()


@pytest.fixture
def solo_decoder(engine, request, tiny_decoder):
    """Decodes alone what the engine decodes among others."""
    return request.getfixturevalue("saved_decoder") if isinstance(engine, RayEngine) else tiny_decoder


@pytest.fixture
def local(tiny_decoder):
    made = LocalEngine(tiny_decoder, max_rows=4)
    yield made
    made.close()


def in_a_fork(decode):
    """Decode in a forked process, as ZeroGPU does, and hand the lists over."""
    context = multiprocessing.get_context("fork")

    def forked(*args):
        reader, writer = context.Pipe(duplex=False)

        def work():
            for events in decode(*args):
                writer.send(events)
            writer.send(None)

        process = context.Process(target=work, daemon=True)
        process.start()
        try:
            while (events := reader.recv()) is not None:
                yield events
        finally:
            process.join(5)

    return forked


def joined(engine: Engine, request: Request) -> Trace:
    return Trace(event for events in engine.submit(request) for event in events)


def idle(engine: Engine) -> bool:
    """Whether every place is free, within a second, in the replicas too where there are some."""

    def busy() -> int:
        loads = [engine.load()]
        if isinstance(engine, RayEngine):
            loads += [load for _, load in engine.handle.broadcast("state").results(timeout_s=5)]
        return sum(load.running + load.waiting for load in loads)

    deadline = time.monotonic() + 1
    while (found := busy()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found == 0


def test_each_of_many_gets_the_text_it_would_get_alone(engine, solo_decoder):
    requests = [
        Request(
            [1 + number, 2, 3],
            SamplingParams(max_tokens=10 + 3 * number, seed=number, temperature=(0.0, 1.0, 0.6)[number % 3]),
            num_draft_tokens=number % 5,
            verify_strategy=("speculative_sampling", "block_verification")[number % 2],
            detail=("full", "probs", "none")[number % 3],
        )
        for number in range(12)
    ]
    with ThreadPoolExecutor(12) as pool:
        traces = list(pool.map(lambda request: joined(engine, request), requests))
    for request, trace in zip(requests, traces, strict=True):
        alone = solo_decoder.generate(
            request.prompt,
            request.params,
            num_draft_tokens=request.num_draft_tokens,
            verify_strategy=request.verify_strategy,
        )
        assert trace.token_ids == alone.token_ids
        assert trace.events[0].kind == EventKind.STARTED
        assert trace.events[-1].finish_reason == alone.finish_reason
        assert [event.row for event in trace] == [0] * len(trace)
    assert idle(engine)


def test_several_sequences_of_one_request_are_told_apart_by_their_rows(engine, solo_decoder):
    params = SamplingParams(n=3, max_tokens=9, seed=5)
    trace = joined(engine, Request([4, 5, 6], params))
    alone = solo_decoder.generate([4, 5, 6], params)
    found = sorted(Trace(event for event in trace if event.row == row).token_ids for row in range(3))
    assert found == sorted(output.token_ids for output in alone.outputs)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request([]), "prompt is empty"),
        (Request([1], num_draft_tokens=65), "num_draft_tokens must be"),
        (Request([1], verify_strategy="hope"), "verify_strategy must be one of"),
        (Request([1], drafter="oracle"), "drafter must be one of"),
        (Request([1], SamplingParams(n=99)), "n and best_of may be"),
    ],
)
def test_a_request_that_cannot_be_is_refused_by_name(engine, request_, said):
    with pytest.raises(ValueError, match=said):
        joined(engine, request_)


def test_a_cancelled_run_ends_within_a_second_and_says_so(engine):
    cancel = threading.Event()
    events: list[Event] = []
    for some in engine.submit(Request([1, 2], LONG), cancel):
        events += some
        if len(events) > 20 and not cancel.is_set():
            cancel.set()
            began = time.monotonic()
    assert time.monotonic() - began < 1
    assert events[-1].finish_reason == FinishReason.CANCELLED


def test_whoever_goes_away_frees_the_place(engine):
    stream = engine.submit(Request([1, 2], LONG))
    next(stream)
    stream.close()
    assert idle(engine)


def test_more_than_fit_wait_and_a_waiting_one_can_be_cancelled(local):
    cancels = [threading.Event() for _ in range(6)]
    streams = [local.submit(Request([1, 2], LONG), cancel) for cancel in cancels]
    firsts = [next(stream) for stream in streams[:4]]
    assert all(first[0].kind == EventKind.STARTED for first in firsts)
    load = local.load()
    assert (load.running, load.waiting, load.capacity) == (4, 2, 4)
    cancels[5].set()
    last = [event for events in streams[5] for event in events]
    assert [event.kind for event in last] == [EventKind.STARTED, EventKind.FINISHED]
    cancels[0].set()
    assert next(streams[4])[0].kind == EventKind.STARTED
    for cancel in cancels:
        cancel.set()


def test_a_closed_engine_ends_its_runs_and_takes_no_more(engine):
    stream = engine.submit(Request([1, 2], LONG))
    first = next(stream)
    engine.close()
    events = first + [event for some in stream for event in some]
    assert events[-1].finish_reason == FinishReason.CANCELLED
    assert not engine.load().ready
    with pytest.raises(Unavailable):
        list(engine.submit(Request([1, 2])))


class Failing:
    """A processor that works until it does not."""

    def __init__(self, after: int, error: Exception) -> None:
        self.after, self.error = after, error

    def __call__(self, history, logits):
        if len(history) >= self.after:
            raise self.error
        return logits


@pytest.mark.parametrize(
    ("error", "said"), [(RuntimeError("a wheel came off"), "a wheel came off"), (MemoryError(), "shorter prompt")]
)
def test_a_failure_ends_only_the_run_that_fails(local, tiny_decoder, error, said):
    good = [Request([number, 2], SamplingParams(max_tokens=40, seed=number)) for number in range(3)]
    bad = Request([7, 2], SamplingParams(max_tokens=40, seed=7, logits_processors=[Failing(9, error)]))
    with ThreadPoolExecutor(4) as pool:
        *fine, failed = pool.map(lambda request: joined(local, request), [*good, bad])
    assert failed.events[-1].finish_reason == FinishReason.ERROR
    assert said in (failed.events[-1].message or "")
    for request, trace in zip(good, fine, strict=True):
        assert trace.token_ids == tiny_decoder.generate(request.prompt, request.params).token_ids
    assert joined(local, good[0]).token_ids == fine[0].token_ids


def test_a_pair_that_fails_in_batches_only_still_serves(tiny_pair):
    """As when memory suffices for one sequence but not for several."""

    class Narrow(SpeculativeDecoder):
        failures = 0

        def _draft(self, workspace, sequences):
            proposal = super()._draft(workspace, sequences)
            if len(sequences) > 1:
                self.failures += 1
                raise RuntimeError("not enough memory: you tried to allocate too much")
            return proposal

    decoder = Narrow(tiny_pair)
    engine = LocalEngine(decoder, max_rows=4)
    requests = [Request([number, 2], SamplingParams(max_tokens=12, seed=number)) for number in range(4)]
    streams = [engine.submit(request) for request in requests]
    traces = [Trace(event for events in stream for event in events) for stream in streams]
    engine.close()
    assert decoder.failures > 0
    for request, trace in zip(requests, traces, strict=True):
        assert trace.token_ids == SpeculativeDecoder(tiny_pair).generate(request.prompt, request.params).token_ids


class Breaking(SpeculativeDecoder):
    """Breaks down with its `last`th commit, for good or once."""

    commits, last, for_good = 0, 30, False

    def _commit(self, sequence, record, logits):
        self.commits += 1
        if self.commits == self.last or (self.for_good and self.commits > self.last):
            raise RuntimeError("device lost")
        return super()._commit(sequence, record, logits)


def test_a_step_that_fails_half_way_is_made_again_and_changes_nothing(tiny_pair):
    decoder = Breaking(tiny_pair)
    engine = LocalEngine(decoder, max_rows=4)
    request = Request([3, 2], SamplingParams(n=3, max_tokens=40, seed=5, logprobs=1), num_draft_tokens="auto")
    trace = joined(engine, request)
    alone = SpeculativeDecoder(tiny_pair).generate([3, 2], request.params, num_draft_tokens="auto")
    engine.close()
    assert decoder.commits > decoder.last
    found = [Trace(event for event in trace if event.row == row).token_ids for row in range(3)]
    assert sorted(found) == sorted(output.token_ids for output in alone.outputs)


def test_an_engine_that_can_decode_nothing_any_more_says_so(tiny_pair):
    decoder = Breaking(tiny_pair)
    decoder.for_good = True
    engine = LocalEngine(decoder, max_rows=4)
    trace = joined(engine, Request([3, 2], LONG))
    assert trace.events[-1].finish_reason == FinishReason.ERROR
    assert "device lost" in trace.events[-1].message
    assert not engine.load().ready
    with pytest.raises(Unavailable, match="started again"):
        engine.submit(Request([3, 2]))
    engine.close()


def test_who_waits_for_an_engine_that_breaks_is_not_kept_waiting(tiny_pair):
    decoder = Breaking(tiny_pair)
    decoder.for_good = True
    engine = LocalEngine(decoder, max_rows=1)
    streams = [engine.submit(Request([3, 2], LONG)) for _ in range(3)]
    assert Trace(event for some in streams[0] for event in some).events[-1].finish_reason == FinishReason.ERROR
    for stream in streams[1:]:
        with pytest.raises(Unavailable):
            list(stream)
    engine.close()


def test_a_long_prompt_is_taken_in_beside_others_and_can_be_stopped(tiny_pair, monkeypatch):
    """Chunk by chunk: those who decode meanwhile wait for one chunk a step."""
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    prompt = [3 + number % 20 for number in range(100)]
    decoder = SpeculativeDecoder(tiny_pair)
    workspace = decoder.new_workspace()
    short, _ = decoder.new_sequence([1, 2], SamplingParams(max_tokens=400, seed=1, ignore_eos=True), workspace=workspace)
    decoder.step([short])
    cancel = threading.Event()
    long, _ = decoder.new_sequence(prompt, SamplingParams(max_tokens=9, seed=2), workspace=workspace)
    given_up, _ = decoder.new_sequence(prompt, SamplingParams(max_tokens=9, seed=2), workspace=workspace, cancel=cancel)
    for number in range(60):
        decoder.step([short, long, given_up])
        if number == 5:
            assert len(short.token_ids) > 7
            assert len(long.token_ids) == len(given_up.token_ids) == 100
            cancel.set()
        if number == 6:
            assert given_up.finish_reason == FinishReason.CANCELLED
    assert long.token_ids[100:] == SpeculativeDecoder(tiny_pair).generate(prompt, long.params).token_ids


def test_who_stops_while_another_s_prompt_is_taken_in_changes_nothing_for_it(tiny_pair, monkeypatch):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    prompt, params = [3 + number % 20 for number in range(60)], SamplingParams(max_tokens=9, temperature=0)
    decoder, cancel = SpeculativeDecoder(tiny_pair), threading.Event()
    alone = decoder.generate(prompt, params).token_ids
    workspace = decoder.new_workspace()
    first, _ = decoder.new_sequence([1, 2], LONG, workspace=workspace, cancel=cancel)
    decoder.step([first])
    second, _ = decoder.new_sequence(prompt, params, workspace=workspace)
    feed = workspace.scorer.prefill
    monkeypatch.setattr(workspace.scorer, "prefill", lambda sequences: (feed(sequences), cancel.set()))
    while second.finish_reason is None:
        decoder.step([one for one in (first, second) if one.finish_reason is None])
    assert first.finish_reason == FinishReason.CANCELLED
    assert second.output_token_ids == alone


@pytest.mark.parametrize("chunk", [4, 512])
def test_sequences_of_one_prompt_share_its_prefill_beside_others(tiny_pair, monkeypatch, chunk):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", chunk)
    decoder = SpeculativeDecoder(tiny_pair)
    engine = LocalEngine(decoder, max_rows=8)
    prompt = [3 + number % 20 for number in range(60)]
    params = SamplingParams(n=3, max_tokens=9, seed=4, prompt_logprobs=1)
    other = engine.submit(Request([1, 2], SamplingParams(max_tokens=60, seed=1, ignore_eos=True)))
    next(other)
    trace = joined(engine, Request(prompt, params))
    rest = Trace(event for events in other for event in events)
    engine.close()
    alone = SpeculativeDecoder(tiny_pair).generate(prompt, params)
    found = [Trace(event for event in trace if event.row == row).token_ids for row in range(3)]
    assert sorted(found) == sorted(output.token_ids for output in alone.outputs)
    assert rest.finished is not None
    assert len(rest.token_ids) == 60


def test_a_prompt_that_would_take_long_to_read_is_refused_unread(engine):
    with pytest.raises(ValueError, match="prompt has 1000001 characters"):
        joined(engine, Request("a" * (10**6 + 1)))


# What a host that decodes elsewhere can do to a run.


def test_a_run_that_the_host_keeps_waiting_can_be_stopped(tiny_decoder):
    turn, seen = threading.Event(), []

    def late(decode):
        def waits(request, flag):
            turn.wait(10)
            for events in decode(request, flag):
                seen.extend(events)
                yield events

        return waits

    engine, cancel = SoloEngine(tiny_decoder, wrap=late), threading.Event()
    stream = engine.submit(Request([1, 2], LONG), cancel)
    threading.Timer(0.2, cancel.set).start()
    began = time.monotonic()
    events = [event for some in stream for event in some]
    assert time.monotonic() - began < 1
    assert [event.kind for event in events] == [EventKind.STARTED, EventKind.FINISHED]
    assert events[-1].finish_reason == FinishReason.CANCELLED
    assert engine.load().running == 0
    turn.set()  # now that nobody wants it any more
    deadline = time.monotonic() + 2
    while not (seen and seen[-1].kind == EventKind.FINISHED) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [event.kind for event in seen] == [EventKind.STARTED, EventKind.FINISHED]


def cut_short(after: int, error: Exception | None):
    def wrap(decode):
        def some(*args):
            for number, events in enumerate(decode(*args)):
                if number == after:
                    break
                yield events
            if error is not None:
                raise error

        return some

    return wrap


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "Run it again"),
        (Unavailable("Quota exceeded: come back tomorrow"), "^Quota exceeded: come back tomorrow$"),
        (RuntimeError("a wheel came off"), "Decoding failed: RuntimeError: a wheel came off"),
    ],
)
def test_a_run_that_the_host_ends_says_so_and_keeps_what_there_was(tiny_decoder, error, said):
    engine = SoloEngine(tiny_decoder, wrap=cut_short(4, error))
    trace = joined(engine, Request([1, 2], SamplingParams(n=2, max_tokens=99, seed=3)))
    ends = [event for event in trace if event.kind == EventKind.FINISHED]
    assert {event.row for event in ends} == {0, 1}
    assert all(event.finish_reason == FinishReason.ERROR and re.search(said, event.message) for event in ends)
    alone = tiny_decoder.generate([1, 2], SamplingParams(n=2, max_tokens=99, seed=3))
    for row in range(2):
        part = Trace(event for event in trace if event.row == row)
        assert 0 < len(part.token_ids) < 99
        assert any(output.token_ids[: len(part.token_ids)] == part.token_ids for output in alone.outputs)


def test_a_host_that_takes_no_run_is_unavailable(tiny_decoder):
    engine = SoloEngine(tiny_decoder, wrap=cut_short(0, Unavailable("no GPU is free")))
    with pytest.raises(Unavailable, match="no GPU is free"):
        joined(engine, Request([1, 2], LONG))
    assert engine.load().running == 0


def test_requests_are_checked_where_the_device_that_decodes_them_is_not(tiny_pair):
    decoder = SpeculativeDecoder(tiny_pair)
    decoder.device = torch.device("cuda")
    engine = SoloEngine(decoder, wrap=cut_short(0, Unavailable("elsewhere")))
    with pytest.raises(Unavailable, match="elsewhere"):
        joined(engine, Request([1, 2], SamplingParams(seed=1, frequency_penalty=1.0, logit_bias={3: 1.0}, n=2)))


# What only an engine with replicas must do. It stands in this file so that Ray is started once.


@pytest.fixture
def ray_engine(cluster):
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


def test_nothing_is_lost_when_a_replica_dies(ray_engine, saved_decoder):
    requests = [long_request(number, 600) for number in range(14)]
    process = next(iter(states(ray_engine)))  # a full replica answers late
    with ThreadPoolExecutor(len(requests)) as pool:
        futures = [pool.submit(read, ray_engine, request) for request in requests]
        deadline = time.monotonic() + 10
        while ray_engine.load().running < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)  # each replica has one more by now, of which nothing was read
        os.kill(process, signal.SIGKILL)
        traces = [future.result() for future in futures]
    assert ray_engine.retried > 0
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
            trace = read(ray_engine, request)
        assert trace.token_ids == alone
    assert 0 < failed <= 4
    assert ray_engine.load().ready


def test_a_request_waits_for_a_full_cluster_and_can_be_cancelled_meanwhile(ray_engine):
    cancels = [threading.Event() for _ in range(14)]
    streams = [ray_engine.submit(long_request(number, 3000), cancel) for number, cancel in enumerate(cancels)]
    with ThreadPoolExecutor(len(streams)) as pool:
        futures = [pool.submit(lambda stream: Trace(event for events in stream for event in events), s) for s in streams]
        deadline = time.monotonic() + 5
        while ray_engine.load().running < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        load = ray_engine.load()
        assert load.running >= 4
        assert load.waiting > 0
        assert load.running + load.waiting == 14
        began = time.monotonic()
        for cancel in cancels:
            cancel.set()
        traces = [future.result() for future in futures]
    assert time.monotonic() - began < 1
    assert {trace.events[-1].finish_reason for trace in traces} == {FinishReason.CANCELLED}
    assert ray_engine.load().running == ray_engine.load().waiting == 0


def test_too_many_that_wait_are_refused_with_a_line(cluster):
    engine = RayEngine(APP, cluster, max_waiting=2)
    with pytest.raises(Unavailable, match="as many as may"):
        engine.submit(Request([1], SamplingParams(n=3)))
    engine.close()


def test_an_update_refuses_no_request(ray_engine, ray_args, saved_decoder):
    requests = [long_request(number, 300) for number in range(4)]
    expected = [saved_decoder.generate(r.prompt, r.params, detail="none").token_ids for r in requests]
    before = set(states(ray_engine))
    updated = threading.Event()

    def visit(number: int) -> list[bool]:
        good = []
        while not updated.is_set():
            trace = read(ray_engine, requests[number])
            good.append(trace is not None and trace.token_ids == expected[number])
        return good

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(visit, number) for number in range(4)]
        ray_cluster.deploy(APP, ray_args.model_copy(update={"max_rows": 6}))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            now = set(states(ray_engine))
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


def test_the_page_offers_the_cluster_and_tells_who_must_wait(ray_engine):
    offer = join_offer(Hosting(queue_size=9), {APP: ray_engine})
    assert (offer.concurrency, offer.load().replicas) == (ray_engine.about.capacity + 9, ray_engine.load().replicas)
    settings = Settings(prompt="w1", pair=APP)
    assert offer.queue(settings) == ""
    streams = [ray_engine.submit(long_request(number, 3000)) for number in range(ray_engine.load().capacity)]
    assert "places are taken" in offer.queue(settings)
    for stream in streams:
        stream.close()
    assert offer.queue(settings) == ""
