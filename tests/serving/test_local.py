"""The engine that steps all requests as one batch in this process, and what its process keeps."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from naive_speculate import SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import EventKind, FinishReason
from naive_speculate.infer.ragged_cache import RaggedKVCache
from naive_speculate.serving import LocalEngine, Request, Unavailable, local
from naive_speculate.speculate.sequence import SequenceState
from tests.serving.contract import LONG, EngineContract, joined


class TestLocalEngine(EngineContract):
    pass


def test_more_than_fit_wait_and_a_waiting_one_can_be_cancelled(engine):
    cancels = [threading.Event() for _ in range(6)]
    streams = [engine.submit(Request([1, 2], LONG), cancel) for cancel in cancels]
    firsts = [next(stream) for stream in streams[:4]]
    assert all(first[0].kind == EventKind.STARTED for first in firsts)
    load = engine.load()
    assert (load.running, load.waiting, load.capacity) == (4, 2, 4)
    cancels[5].set()
    last = [event for events in streams[5] for event in events]
    assert [event.kind for event in last] == [EventKind.STARTED, EventKind.FINISHED]
    cancels[0].set()
    assert next(streams[4])[0].kind == EventKind.STARTED
    for cancel in cancels:
        cancel.set()


def test_a_failure_ends_only_the_run_that_fails(engine, patient_decoder):
    def failing(error: Exception, history, logits):
        if len(history) >= 9:
            raise error
        return logits

    good = [Request([number, 2], SamplingParams(max_tokens=20, seed=number)) for number in range(3)]
    errors = {"a wheel came off": RuntimeError("a wheel came off"), "shorter prompt": MemoryError()}
    fails = {said: partial(failing, error) for said, error in errors.items()}
    fails["banned every token"] = lambda history, logits: logits - float("inf")
    bad = [
        Request([7, 2], SamplingParams(max_tokens=40, seed=7, logits_processors=[fail]))
        for fail in fails.values()
    ]
    with ThreadPoolExecutor(6) as pool:
        traces = list(pool.map(lambda request: joined(engine, request), [*good, *bad]))
    for said, trace in zip(fails, traces[3:], strict=True):
        assert trace.events[-1].finish_reason == FinishReason.ERROR
        assert said in (trace.events[-1].message or "")
    for request, trace in zip(good, traces, strict=False):
        assert trace.token_ids == patient_decoder.generate(request.prompt, request.params).token_ids
    assert joined(engine, good[0]).token_ids == traces[0].token_ids


def test_a_pair_that_fails_in_batches_only_still_serves(tiny_pair):
    """As when memory suffices for one sequence but not for several."""

    failures = []

    class Narrow(SpeculativeDecoder):
        def new_batch(self):
            batch = super().new_batch()
            propose = batch.runner.propose

            def alone(rows):
                if len(rows) > 1:
                    failures.append(rows)
                    raise RuntimeError("not enough memory: you tried to allocate too much")
                return propose(rows)

            batch.runner.propose = alone
            return batch

    engine = LocalEngine(Narrow(tiny_pair), max_rows=4)
    requests = [
        Request([number, 2], SamplingParams(max_tokens=12, seed=number)) for number in range(4)
    ]
    streams = [engine.submit(request) for request in requests]
    for request, stream in zip(requests, streams, strict=True):
        trace = Trace(event for events in stream for event in events)
        assert (
            trace.token_ids
            == SpeculativeDecoder(tiny_pair).generate(request.prompt, request.params).token_ids
        )
    assert failures
    engine.close()


@pytest.fixture
def breaking(tiny_pair, monkeypatch):
    """A decoder that breaks down with its `last`th commit of a row, for good or once."""
    decoder = SpeculativeDecoder(tiny_pair)
    decoder.commits, decoder.last, decoder.for_good = 0, 14, False
    commit = SequenceState.commit

    def counted(row, outcome):
        decoder.commits += 1
        if decoder.commits == decoder.last or (decoder.for_good and decoder.commits > decoder.last):
            raise RuntimeError("device lost")
        return commit(row, outcome)

    monkeypatch.setattr(SequenceState, "commit", counted)
    return decoder


def test_a_step_that_fails_half_way_is_made_again_and_changes_nothing(tiny_pair, breaking):
    engine = LocalEngine(breaking, max_rows=4)
    request = Request(
        [3, 2], SamplingParams(n=3, max_tokens=20, seed=5, logprobs=1), num_draft_tokens="auto"
    )
    trace = joined(engine, request)
    alone = SpeculativeDecoder(tiny_pair).generate([3, 2], request.params, num_draft_tokens="auto")
    engine.close()
    assert breaking.commits > breaking.last
    assert sorted(trace.row(row).token_ids for row in range(3)) == sorted(
        output.token_ids for output in alone.outputs
    )


def test_an_engine_that_can_decode_nothing_any_more_says_so_and_keeps_nobody_waiting(breaking):
    breaking.for_good = True
    engine = LocalEngine(breaking, max_rows=1)
    first, *waiting = (engine.submit(Request([3, 2], LONG)) for _ in range(3))
    last = [event for some in first for event in some][-1]
    assert (last.finish_reason, "device lost" in last.message) == (FinishReason.ERROR, True)
    for stream in waiting:
        with pytest.raises(Unavailable):
            list(stream)
    assert not engine.load().ready
    with pytest.raises(Unavailable, match="started again"):
        engine.submit(Request([3, 2]))
    engine.close()


def test_a_lack_of_memory_while_tidying_up_ends_nothing(patient_decoder, monkeypatch):
    tried = []

    def no_room(cache):
        tried.append(cache)
        raise RuntimeError("not enough memory: you tried to allocate")

    monkeypatch.setattr(RaggedKVCache, "trim", no_room)
    engine = LocalEngine(patient_decoder, max_rows=4)
    beside = engine.submit(Request([3, 2], LONG))
    next(beside)
    short = Request([4, 2], SamplingParams(max_tokens=5, ignore_eos=True))
    assert len(joined(engine, short).token_ids) == 5
    assert tried
    assert len(joined(engine, short).token_ids) == 5
    beside.close()
    engine.close()


def test_memory_is_freed_between_runs_that_follow_one_another_closely(engine, monkeypatch):
    freed = threading.Event()
    monkeypatch.setattr(local, "free_memory", freed.set)
    monkeypatch.setattr(local, "TIDY_SECONDS", 0.3)
    for _ in range(1000):
        list(engine.submit(Request([1, 2], SamplingParams(max_tokens=1)), threading.Event()))
        if freed.wait(0.02):
            return
    pytest.fail("1000 runs went by")


ROOT = Path(__file__).resolve().parents[2]


def test_what_is_loaded_is_no_work_for_the_collector_and_later_garbage_is_found() -> None:
    code = """
import gc, runpy, sys, types, weakref
# they take seconds, and are not used here
sys.modules["torch"] = sys.modules["numpy"] = types.SimpleNamespace(Tensor=None)
settle_memory = runpy.run_path("naive_speculate/models/memory.py")["settle_memory"]

class Run:
    pass

made = [[] for _ in range(200_000)]
loaded = len(gc.get_objects())
settle_memory()
few = len(gc.get_objects()) < loaded / 10
run = Run()
run.reader = run
gone = weakref.ref(run)
gc.collect(1)  # it is no longer young when its reader goes
del run
later = [[] for _ in range(120_000)]
print(few, gone() is None)
"""
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert (told.stdout, "leaked" in told.stderr) == ("True True\n", False)
