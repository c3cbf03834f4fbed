"""The engine whose pair is loaded later: it holds requests until then, and is what it loads from
then on."""

import threading
from queue import SimpleQueue

import pytest

from naive_speculate import SamplingParams
from naive_speculate.serving import About, LocalEngine, Request, Unavailable
from naive_speculate.serving.protocol import STOPPING, Reader
from tests.serving.contract import PATIENCE, EngineContract, rest_of
from ui.host.deferred import DeferredEngine

ABOUT = About({"target": "awaited"}, "cpu", chat=True, capacity=4)
REQUEST = Request([1, 2, 3], SamplingParams(max_tokens=6, seed=1))


def deferred(make, max_waiting: int = 4) -> DeferredEngine:
    return DeferredEngine("Awaited", ABOUT, make, max_waiting)


@pytest.fixture
def engine(patient_decoder):
    held = deferred(lambda: LocalEngine(patient_decoder, max_rows=4))
    held.load_pair()
    yield held
    held.close()


class TestDeferredEngine(EngineContract):
    pass


def test_what_is_requested_before_begins_when_the_pair_is_loaded_which_on_demand_the_first_request_does_once(
    tiny_decoder,
):
    engine = deferred(lambda: LocalEngine(tiny_decoder))
    assert (engine.about, engine.loading, engine.load().ready) == (ABOUT, True, False)
    assert engine.load().reason == "Awaited is loading. Its runs start as soon as it is ready."
    lists, come = engine.submit(REQUEST), SimpleQueue()
    engine.start(REQUEST, threading.Event(), come.put)
    engine.load_pair()
    assert engine.about.models != ABOUT.models
    assert engine.load().ready
    read, delivered = (
        [event.token_id for events in some for event in events] for some in (lists, rest_of(come))
    )
    assert (
        read
        == delivered
        == [event.token_id for event in tiny_decoder.generate([1, 2, 3], REQUEST.params).trace]
    )
    engine.close()

    made: list[LocalEngine] = []

    def make() -> LocalEngine:
        made.append(LocalEngine(tiny_decoder))
        return made[-1]

    engine = DeferredEngine("Awaited", ABOUT, make, 4, on_demand=True)
    assert (engine.loading, engine.loaded, engine.load().ready, engine.load().capacity) == (
        False,
        False,
        True,
        4,
    )
    runs = [engine.submit(REQUEST) for _ in range(2)]
    assert all(any(run) for run in runs)
    assert (engine.loaded, len(made)) == (True, 1)
    engine.close()


def test_a_held_run_that_is_cancelled_ends_before_the_pair_is_loaded_and_no_more_are_held_than_may_wait(
    tiny_decoder,
):
    engine, cancel, come = (
        deferred(lambda: LocalEngine(tiny_decoder)),
        threading.Event(),
        SimpleQueue(),
    )
    engine.start(REQUEST, cancel, come.put)
    cancel.set()
    assert come.get(timeout=PATIENCE) is None
    assert list(engine.submit(REQUEST, cancel)) == []
    assert engine.load().waiting == 0
    with pytest.raises(Unavailable, match="0 others are waiting"):
        deferred(lambda: LocalEngine(tiny_decoder), max_waiting=0).submit(REQUEST)


def test_a_held_run_whose_reader_fails_harms_no_other(tiny_decoder):
    def fail(_) -> None:
        raise RuntimeError("the reader's loop is closed")

    engine, cancel, come = (
        deferred(lambda: LocalEngine(tiny_decoder)),
        threading.Event(),
        SimpleQueue(),
    )
    for deliver in (fail, come.put):
        engine.start(REQUEST, cancel, deliver)
    cancel.set()
    assert come.get(timeout=PATIENCE) is None
    for request, deliver in ((Request([]), fail), (REQUEST, come.put)):
        engine.start(request, threading.Event(), deliver)
    engine.load_pair()
    assert any(rest_of(come))
    engine.close()


def test_held_runs_end_with_the_reason_why_the_pair_is_not_loaded():
    def make():
        raise ValueError("there is no such model")

    engine, stopped, come = deferred(make), deferred(make), SimpleQueue()
    engine.start(REQUEST, threading.Event(), come.put)
    with pytest.raises(ValueError, match="there is no such model"):
        engine.load_pair()
    assert str(come.get(timeout=PATIENCE)) == engine.load().reason == "there is no such model"
    with pytest.raises(Unavailable, match="there is no such model"):
        engine.submit(REQUEST)
    stopped.start(REQUEST, threading.Event(), come.put)
    stopped.close()
    assert str(come.get(timeout=PATIENCE)) == STOPPING


def test_held_runs_begin_by_turns_and_the_reader_with_most_of_them_makes_room(tiny_decoder):
    engine, begun = deferred(lambda: LocalEngine(tiny_decoder, max_rows=1)), SimpleQueue()
    ends = {name: SimpleQueue() for name in ("many 1", "many 2", "many 3", "many 4", "other")}
    for name, end in ends.items():

        def take(item, name=name, end=end) -> None:
            if not isinstance(item, list):
                end.put(item)
            elif item[0].kind == "started":
                begun.put(name)

        engine.start(REQUEST, threading.Event(), take, Reader(name.split()[0]))
    assert "Too many of your runs are waiting" in str(ends.pop("many 4").get(timeout=PATIENCE))
    assert engine.load().waiting == 4
    engine.load_pair()
    assert [end.get(timeout=PATIENCE) for end in ends.values()] == [None] * 4
    assert [begun.get() for _ in ends] == ["many 1", "other", "many 2", "many 3"]
    engine.close()
