"""The engine whose decoder is loaded after it was made: runs wait until then."""

import threading
from queue import SimpleQueue

import pytest

from naive_speculate import SamplingParams
from naive_speculate.serving import About, Later, LocalEngine, Request, Unavailable
from naive_speculate.serving.protocol import STOPPING, Reader
from tests.serving.contract import PATIENCE, rest_of

ABOUT = About({"target": "awaited"}, "cpu", chat=True, capacity=4)
REQUEST = Request([1, 2, 3], SamplingParams(max_tokens=6, seed=1))


def deferred(load, max_waiting: int = 4, max_rows: int = 4, on_demand: bool = False) -> LocalEngine:
    later = Later(load, ABOUT, "The pair is loading.", on_demand)
    return LocalEngine(later, max_rows=max_rows, max_waiting=max_waiting)


def test_earlier_requests_begin_when_the_pair_is_loaded_which_the_first_request_does_on_demand(
    tiny_decoder,
):
    engine = deferred(lambda: tiny_decoder)
    assert (engine.about, engine.loading, engine.load().ready) == (ABOUT, True, False)
    assert engine.load().reason == "The pair is loading."
    lists, come = engine.submit(REQUEST), SimpleQueue()
    engine.start(REQUEST, threading.Event(), come.put)
    engine.load_decoder()
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

    loads = []

    def load():
        loads.append(tiny_decoder)
        return tiny_decoder

    engine = deferred(load, on_demand=True)
    assert (engine.loading, engine.loaded, engine.load().ready, engine.load().capacity) == (
        False,
        False,
        True,
        4,
    )
    runs = [engine.submit(REQUEST) for _ in range(2)]
    assert all(any(run) for run in runs)
    assert (engine.loaded, len(loads)) == (True, 1)
    engine.close()


def test_a_held_run_that_is_cancelled_ends_before_loading_and_no_more_are_held_than_may_wait(
    tiny_decoder,
):
    engine, cancel, come = (
        deferred(lambda: tiny_decoder),
        threading.Event(),
        SimpleQueue(),
    )
    engine.start(REQUEST, cancel, come.put)
    cancel.set()
    assert come.get(timeout=PATIENCE) is None
    assert list(engine.submit(REQUEST, cancel)) == []
    assert engine.load().waiting == 0
    with pytest.raises(Unavailable, match="0 others are waiting"):
        deferred(lambda: tiny_decoder, max_waiting=0).submit(REQUEST)


def test_a_held_run_whose_reader_fails_harms_no_other(tiny_decoder):
    def fail(_) -> None:
        raise RuntimeError("the reader's loop is closed")

    engine, cancel, come = (
        deferred(lambda: tiny_decoder),
        threading.Event(),
        SimpleQueue(),
    )
    for deliver in (fail, come.put):
        engine.start(REQUEST, cancel, deliver)
    cancel.set()
    assert come.get(timeout=PATIENCE) is None
    for request, deliver in ((Request([]), fail), (REQUEST, come.put)):
        engine.start(request, threading.Event(), deliver)
    engine.load_decoder()
    assert any(rest_of(come))
    engine.close()


def test_held_runs_end_with_the_reason_why_the_pair_is_not_loaded():
    def fail():
        raise ValueError("there is no such model")

    engine, stopped, come = deferred(fail), deferred(fail), SimpleQueue()
    engine.start(REQUEST, threading.Event(), come.put)
    with pytest.raises(ValueError, match="there is no such model"):
        engine.load_decoder()
    assert str(come.get(timeout=PATIENCE)) == engine.load().reason == "there is no such model"
    with pytest.raises(Unavailable, match="there is no such model"):
        engine.submit(REQUEST)
    stopped.start(REQUEST, threading.Event(), come.put)
    stopped.close()
    assert str(come.get(timeout=PATIENCE)) == STOPPING


def test_held_runs_begin_by_turns_and_the_reader_with_most_of_them_makes_room(tiny_decoder):
    engine, begun = deferred(lambda: tiny_decoder, max_rows=1), SimpleQueue()
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
    engine.load_decoder()
    assert [end.get(timeout=PATIENCE) for end in ends.values()] == [None] * 4
    assert [begun.get() for _ in ends] == ["many 1", "other", "many 2", "many 3"]
    engine.close()
