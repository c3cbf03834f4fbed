"""How a run's events pass from the decoder to its readers."""

import asyncio
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from naive_speculate import SamplingParams, Trace
from naive_speculate.events import Event, EventKind, FinishReason
from naive_speculate.serving import LocalEngine, Request, Unavailable
from naive_speculate.serving.delivery import Inbox, pump
from naive_speculate.serving.visit import Trouble
from tests.serving.contract import LONG, PATIENCE, joined
from ui.host.catalog import Catalog, ServedPair
from ui.run.runs import ShownRun

PLACES = 16


def in_a_loop(coroutine):
    """Run it in an event loop of its own; a browser test may have one running in this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result(PATIENCE)


def token(number: int) -> Event:
    return Event(EventKind.BONUS, token_id=number)


def test_an_inbox_gives_all_that_was_delivered_in_order_and_a_closed_loop_does_no_harm():
    inbox = Inbox()

    async def read(count: int) -> list[int | None]:
        found = []
        async for events in inbox.lists(lambda: 0.01):
            found += [event.token_id for event in events]
            if len(found) >= count:
                break
        return found

    pump(([token(number)] for number in range(300)), inbox.deliver)
    assert in_a_loop(read(10**6)) == list(range(300))
    inbox = Inbox()
    inbox.deliver([token(1)])
    in_a_loop(read(1))
    inbox.deliver([token(2)])
    inbox.deliver(None)
    assert inbox.lag > 0
    inbox.skip()  # what was read in another way
    assert inbox.lag == 0


def test_a_run_that_ends_does_not_wait_for_its_next_list_and_a_failure_comes_last():
    sizes: list[int] = []

    async def read(end: Exception | None) -> None:
        inbox = Inbox()
        inbox.deliver([token(1)])
        async for events in inbox.lists(lambda: 10**6):
            sizes.append(len(events))
            if len(sizes) % 2:
                inbox.deliver([token(2)])
                inbox.deliver([token(3)])
                inbox.deliver(end)

    in_a_loop(read(None))
    with pytest.raises(ValueError, match="a wheel came off"):
        in_a_loop(read(ValueError("a wheel came off")))
    assert sizes == [1, 2, 1, 2]


def test_a_reader_that_fails_ends_its_own_run_only(engine):
    calls: SimpleQueue[None] = SimpleQueue()

    def fails(said):
        calls.put(None)
        raise RuntimeError("the loop is closed")

    engine.start(Request([1, 2], LONG), threading.Event(), fails)
    calls.get(timeout=PATIENCE)
    everybody = Request(
        [3], SamplingParams(n=16, max_tokens=2, seed=1)
    )  # begins when every place is free
    assert joined(engine, everybody).events[-1].finish_reason == FinishReason.LENGTH


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whose_decoding_thread_dies_is_reported(patient_decoder, monkeypatch):
    def dies(*args):
        raise SystemExit

    monkeypatch.setattr(LocalEngine, "_step", dies)
    engine, come = LocalEngine(patient_decoder, max_rows=1), SimpleQueue()
    engine.start(Request([1, 2], LONG), threading.Event(), come.put)
    assert come.get(timeout=PATIENCE)[0].kind == EventKind.STARTED
    assert isinstance(come.get(timeout=PATIENCE), Unavailable)
    assert not engine.load().ready
    with pytest.raises(Unavailable, match="started again"):
        engine.submit(Request([1, 2]))
    engine._thread.join(PATIENCE)  # so that its end is reported while this test runs


async def read_all(run: ShownRun, begun: threading.Event) -> None:
    async for _, events in run.batches(0.0):
        if events:
            begun.set()


def test_the_page_s_runs_take_no_thread_each(engine):
    catalog = Catalog({"pair": ServedPair(engine)}, max_tokens=10**6)
    before = threading.active_count()
    runs = [ShownRun() for _ in range(12)]
    for run in runs:
        run.start(
            lambda cancel, deliver: catalog.start("pair", Request([1, 2], LONG), cancel, deliver)
        )

    async def watch() -> int:
        begun = [threading.Event() for _ in runs]
        readers = [
            asyncio.create_task(read_all(run, event))
            for run, event in zip(runs, begun, strict=True)
        ]
        while not all(event.is_set() for event in begun):
            await asyncio.sleep(0)
        threads = threading.active_count()
        for run in runs:
            run.cancel.set()
        await asyncio.gather(*readers)
        return threads

    assert in_a_loop(watch()) - before <= 6  # the loop's, and the few that check requests
    assert all(run.done.is_set() and run.error is None for run in runs)
    assert {run.events[-1].finish_reason for run in runs} == {FinishReason.CANCELLED}


def bad(history, logits):
    raise RuntimeError("a wheel came off")


def test_a_run_that_cannot_be_or_fails_says_why_after_its_last_event(engine):
    catalog, fails = (
        Catalog({"pair": ServedPair(engine)}, max_tokens=10**6),
        SamplingParams(logits_processors=[bad]),
    )
    for request, error, said, last in (
        (Request([1], SamplingParams(max_tokens=10**7)), ValueError, "max_tokens must be", []),
        (Request([], LONG), ValueError, "prompt is empty", []),
        (Request([1], fails), Trouble, "a wheel came off", [FinishReason.ERROR]),
    ):
        run = ShownRun()
        run.start(
            lambda cancel, deliver, request=request: catalog.start("", request, cancel, deliver)
        )
        assert run.done.wait(PATIENCE)
        assert (type(run.error), said in str(run.error)) == (error, True)
        assert [event.finish_reason for event in run.events[-1:]] == last


def test_events_travel_light_and_unchanged_to_another_process(patient_decoder):
    events = list(patient_decoder.stream([1, 2, 3], SamplingParams(max_tokens=30, seed=1)))
    data = pickle.dumps(events)
    assert [event.to_dict() for event in pickle.loads(data)] == [
        event.to_dict() for event in events
    ]
    assert len(data) < 0.5 * len(Trace(events).to_jsonl())
