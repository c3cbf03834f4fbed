"""The engine for hosts that decode each request elsewhere, and what such a host can do to a run."""

import multiprocessing
import re
import threading
from dataclasses import replace

import pytest
import torch

from naive_speculate import SamplingParams, SpeculativeDecoder
from naive_speculate.events import EventKind, FinishReason
from naive_speculate.serving import Request, SoloEngine, Unavailable
from naive_speculate.speculate.batch import Batch
from tests.serving.contract import LONG, PATIENCE, EngineContract, joined


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


@pytest.fixture
def engine(patient_decoder, request):
    made = SoloEngine(patient_decoder, wrap=getattr(request.cls, "wrap", None), max_rows=4)
    yield made
    made.close()


@pytest.fixture
def all_free():
    def free(engine: SoloEngine) -> bool:
        """Once no thread decodes or delivers any more."""
        pumps = [thread for thread in threading.enumerate() if thread.name == "pump"]
        for thread in pumps:
            thread.join(PATIENCE)
        return engine.load().running == 0 and not any(thread.is_alive() for thread in pumps)

    return free


class TestSoloEngine(EngineContract):
    pass


class TestForked:
    """What another process can change: events travel, and a cancel flag or a reader that went
    away has to reach it."""

    wrap = staticmethod(in_a_fork)
    test_events_travel = EngineContract.test_a_run_that_is_delivered_is_the_run_that_is_read_and_rows_distinguish_its_sequences
    test_a_cancelled_run_ends = (
        EngineContract.test_a_cancelled_run_ends_and_observers_hear_once_of_it_and_before_its_end
    )
    test_a_closed_engine_ends_its_runs = (
        EngineContract.test_a_closed_engine_ends_its_runs_and_takes_no_more
    )


def test_a_run_that_the_host_keeps_waiting_can_be_stopped(tiny_decoder):
    asked, turn, over, seen = threading.Event(), threading.Event(), threading.Event(), []

    def late(decode):
        def waits(request, flag):
            asked.set()
            turn.wait()
            for events in decode(request, flag):
                seen.extend(events)
                yield events
            over.set()

        return waits

    engine, cancel = SoloEngine(tiny_decoder, wrap=late), threading.Event()
    stream = engine.submit(Request([1, 2], LONG), cancel)
    threading.Thread(target=lambda: asked.wait(PATIENCE) and cancel.set()).start()
    events = [event for some in stream for event in some]
    assert [event.kind for event in events] == [EventKind.STARTED, EventKind.FINISHED]
    assert events[-1].finish_reason == FinishReason.CANCELLED
    assert engine.load().running == 0
    turn.set()  # now that it has no reader
    assert over.wait(PATIENCE)
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


def test_a_host_that_takes_no_run_is_unavailable_and_requests_are_checked_without_its_device(
    tiny_pair,
):
    decoder = SpeculativeDecoder(tiny_pair)
    decoder.admission.device = torch.device("cuda")
    engine = SoloEngine(decoder, wrap=cut_short(0, Unavailable("no GPU is free")))
    with pytest.raises(Unavailable, match="no GPU is free"):
        joined(
            engine,
            Request(
                [1, 2], SamplingParams(seed=1, frequency_penalty=1.0, logit_bias={3: 1.0}, n=2)
            ),
        )
    assert engine.load().running == 0


def failing(history, logits):
    if len(history) > 6:
        raise RuntimeError("a wheel came off")
    return logits


QUOTA = "Quota exceeded: come back tomorrow"


@pytest.mark.parametrize(
    ("processors", "wrap", "said"),
    [
        ([], None, None),
        ([failing], None, "a wheel came off"),
        ([], cut_short(4, None), "Run it again"),
        ([], cut_short(4, Unavailable(QUOTA)), f"^{QUOTA}$"),
        (
            [],
            cut_short(4, RuntimeError("a wheel came off")),
            "Decoding failed: RuntimeError: a wheel came off",
        ),
    ],
    ids=["over", "failed", "cut off", "no quota", "the host fails"],
)
def test_a_run_that_fails_or_that_the_host_ends_says_so_and_gives_its_rows_back(
    tiny_decoder, all_free, monkeypatch, processors, wrap, said
):
    held: list[int] = []

    def counting(method, change: int):
        def counted(batch, rows) -> None:
            rows = list(rows)
            held.append(change * len(rows))
            method(batch, rows)

        return counted

    params = SamplingParams(n=2, max_tokens=24, seed=3, ignore_eos=True)
    alone = [output.token_ids for output in tiny_decoder.generate([1, 2], params).outputs]
    monkeypatch.setattr(Batch, "admit", counting(Batch.admit, 1))
    monkeypatch.setattr(Batch, "release", counting(Batch.release, -1))
    engine = SoloEngine(tiny_decoder, wrap=wrap)
    trace = joined(engine, Request([1, 2], replace(params, logits_processors=processors)))
    assert all_free(engine)
    assert held == [2, -2]
    ends = [event for event in trace if event.kind == EventKind.FINISHED]
    assert {event.row for event in ends} == {0, 1}
    for event in ends:
        assert event.finish_reason == (FinishReason.ERROR if said else FinishReason.LENGTH)
        assert said is None or re.search(said, event.message)
    for found in (trace.row(row).token_ids for row in range(2)):
        assert 0 < len(found) <= 24 - bool(said)
        assert found in [whole[: len(found)] for whole in alone]
