"""Runs: delivered as they are decoded, handed over in batches, private, ended when no page reads
them."""

import asyncio
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from naive_speculate.events import Event, EventKind
from naive_speculate.serving.delivery import pump
from ui.run.runs import ABANDONED_SECONDS, MOST_UNREAD, NO_ROOM, TOO_LARGE, Runs, ShownRun


def collect(run: ShownRun) -> list[tuple[int, list[Event]]]:
    async def read():
        return [batch async for batch in run.batches()]

    with ThreadPoolExecutor(
        1
    ) as thread:  # a browser test may have an event loop running in this one
        return thread.submit(asyncio.run, read()).result()


def decoding(stream):
    """What starts a decoder of these events, in a thread of its own."""
    return lambda cancel, deliver: pump(([event] for event in stream(cancel)), deliver)


def test_batches_joined_are_the_run_and_a_failing_decoder_ends_them_and_is_reported():
    def stream(cancel: threading.Event):
        yield from (Event(EventKind.BONUS, step=n, index=0, token_id=n) for n in range(500))
        raise ValueError("prompt is empty")

    run = ShownRun()
    run.start(decoding(stream))
    batches = collect(run)
    assert [event.token_id for _, events in batches for event in events] == list(range(500))
    assert [first for first, _ in batches] == [
        sum(len(e) for _, e in batches[:i]) for i in range(len(batches))
    ]
    assert str(run.error) == "prompt is empty"


def endless(cancel: threading.Event):
    while not cancel.is_set():
        yield Event(EventKind.BONUS)
        cancel.wait(0.001)


def silent(cancel: threading.Event):
    cancel.wait()
    yield from ()


@pytest.fixture
def visit():
    """A visitor's endless run, among the runs."""
    runs, run = Runs(), ShownRun()
    run.start(decoding(endless))
    runs.add("visitor", run)
    yield runs, run
    run.cancel.set()
    assert run.done.wait(60)


def test_a_run_whose_visitor_s_connection_ends_goes_on_and_a_second_one_takes_its_place(visit):
    (runs, first), second = visit, ShownRun()
    runs.leave("visitor")
    assert not first.cancel.is_set()
    assert runs.get(first.id) is first
    runs.add("visitor", second)
    assert first.done.wait(60)
    assert not second.cancel.is_set()
    assert runs.get(first.id) is first, "what is still on the screen can still be asked about"


def test_stop_or_leaving_ends_a_visitor_s_run_and_no_other(visit, monkeypatch):
    (runs, run), other = visit, ShownRun()
    runs.add("you", other)
    runs.cancel("visitor")
    assert run.done.wait(60)
    monkeypatch.setattr("ui.run.runs.LEFT_SECONDS", 0.0)
    runs.leave("visitor")
    assert runs.get(run.id) is None
    assert not other.cancel.is_set()
    assert runs.get(other.id) is other


@pytest.mark.parametrize("back", ["add", "read", None])
def test_a_visitor_who_does_not_come_back_or_read_on_is_forgotten_in_the_end(monkeypatch, back):
    runs, mine = Runs(), ShownRun()
    runs.add("me", mine)
    runs.leave("me")
    if back == "add":
        runs.add("me", ShownRun())
    elif back == "read":
        assert runs.read(mine.id) is mine
    monkeypatch.setattr("ui.run.runs.LEFT_SECONDS", 0.0)
    runs.add("you", ShownRun())
    assert runs.get(mine.id) is (mine if back else None)
    assert mine.cancel.is_set() == (back != "read")  # a new run cancels the one before


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("pauses", [False, True])
def test_a_run_is_ended_if_and_only_if_no_one_reads_it(monkeypatch, pauses, reads):
    """Also where the engine pauses, and delivers nothing, while the reader lags."""
    clock = SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns)
    now, run, begun, deliver = [1.0], ShownRun(), threading.Event(), []
    for module in ("ui.run.runs", "naive_speculate.serving.delivery"):
        monkeypatch.setattr(f"{module}.time", clock)

    async def decode() -> None:
        reader, batches = run.reader(), run.batches(0.0)
        run.start(lambda _cancel, take: (deliver.append(take), begun.set()))
        assert begun.wait(60)
        for _ in range(4):
            for _ in range(MOST_UNREAD // 200 + 1):
                if not (pauses and reader.lags()):
                    deliver[0](events_of(200))
            assert not pauses or reader.lags() or run.cancel.is_set()
            while reads and run.inbox.unread:
                await anext(batches)
            assert not pauses or reader.lags() == (not reads and not run.cancel.is_set())
            now[0] += 0.6 * ABANDONED_SECONDS
        deliver[0](None)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, decode()).result(60)
    assert run.cancel.is_set() == (not reads)


def events_of(count: int) -> list[Event]:
    return [Event(EventKind.BONUS, text=f"token {number} ") for number in range(count)]


def kept(runs: Runs, made: dict[str, ShownRun]) -> list[bool]:
    """Which runs are kept after each was added for the visitor named by the first letter of its
    key."""
    for name, run in made.items():
        runs.add(name[0], run)
    return [runs.get(run.id) is run for run in made.values()]


def test_only_so_many_runs_and_bytes_are_kept_and_a_pinned_run_stays():
    runs, recorded = Runs(kept=3), ShownRun(id="recorded")
    runs.pin(recorded)
    assert kept(runs, {name: ShownRun() for name in "abcde"}) == [False, False, True, True, True]
    assert runs.get("recorded") is recorded
    assert kept(Runs(), {name: ShownRun() for name in ("a1", "a2", "a3")}) == [
        False,
        True,
        True,
    ]  # each visitor's last two
    few_long = {
        name: ShownRun([Event(EventKind.BONUS, text="é" * 50_000 + name)]) for name in "abc"
    }
    assert all(50_000 < run.size < 70_000 for run in few_long.values())
    assert kept(Runs(total_bytes=150_000), few_long) == [False, True, True]
    of_visitors = {name: ShownRun(events_of(100)) for name in ("b", "a1", "a2")}
    assert kept(Runs(visitor_bytes=of_visitors["b"].size * 3 // 2), of_visitors) == [
        True,
        False,
        True,
    ]


def test_what_a_visitor_opens_ends_no_other_run_and_is_itself_forgotten():
    live, finished = ShownRun(), ShownRun(events_of(10))
    runs = Runs(total_bytes=10 * finished.size)
    live.start(decoding(silent))
    runs.add("somebody", live)
    runs.add("another", finished)
    opened = [ShownRun(events_of(80)) for _ in range(3)]
    for run in opened:
        runs.add("visitor", run)
    assert not live.cancel.is_set()
    assert runs.get(live.id) is live
    assert [runs.get(run.id) is not None for run in opened] == [False, False, True]
    assert runs.get(finished.id) is finished
    gone = weakref.ref(opened[0])
    del opened, run
    assert gone() is None
    live.cancel.set()


def test_a_dropped_run_leaves_the_one_before_and_an_opened_run_is_given_to_one_visitor():
    runs, before, broken = Runs(), ShownRun(), ShownRun()
    runs.add("visitor", before)
    runs.add("visitor", broken)
    runs.drop(broken)
    assert runs.get(before.id) is before
    assert [runs.get(odd) for odd in (broken.id, None, 3, [], {}, "", "no such run")] == [None] * 7
    runs, run, mine = Runs(), ShownRun(events_of(3)), ShownRun(events_of(3))
    runs.add(run.id, run)
    runs.add("visitor", mine)
    assert runs.adopt("visitor", run.id) is run
    assert [runs.adopt("another", asked) for asked in (run.id, mine.id, "visitor", None, {})] == [
        None
    ] * 5
    for _ in range(2):
        runs.add("visitor", ShownRun())
    assert runs.get(run.id) is None


@pytest.mark.parametrize(
    ("limits", "said"), [({"visitor_bytes": 2**21}, TOO_LARGE), ({"total_bytes": 2**21}, NO_ROOM)]
)
def test_a_live_run_that_grows_too_large_is_ended_and_says_so(limits, said):
    runs, run = Runs(**limits), ShownRun()

    def begin(cancel, deliver):
        while not cancel.is_set():
            deliver(events_of(1000))
        deliver(None)

    runs.add("visitor", run)
    run.start(begin)
    assert run.done.wait(60)
    assert str(run.error) == said
    assert run.size < 2**22
