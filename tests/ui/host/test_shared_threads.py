"""What visitors send is checked in turn."""

import threading
from functools import partial

import pytest

from naive_speculate.serving.protocol import Reader
from ui.host.catalog import Trouble
from ui.host.visitors import Turns

MANY, OTHER = Reader("1.1.1.1", "one"), Reader("2.2.2.2", "two")


@pytest.fixture
def held():
    """Turns in one thread, with three pieces of a visitor: the first is being worked on until `go` is set."""
    turns, begun, go, done = Turns(1, "test", most=3), threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        assert go.wait(60)

    turns.submit(first, MANY)
    assert begun.wait(60)
    waiting = [turns.submit(partial(done.append, number), MANY) for number in range(3)]
    yield turns, go, done, waiting
    go.set()


def test_a_visitor_waits_for_one_piece_of_another(held):
    turns, go, done, waiting = held
    other = turns.submit(partial(done.append, "other"), OTHER)
    go.set()
    assert other.result(60) is None
    assert [each.result(60) for each in waiting[:2]] == [None, None]
    assert done == ["other", 0, 1]


def test_the_visitor_with_most_waiting_is_refused_where_there_are_too_many(held):
    turns, go, _, waiting = held
    other = turns.submit(lambda: "checked", OTHER)
    assert turns.size == 4  # one is being worked on
    for refused in (waiting[-1], turns.submit(lambda: None, MANY)):
        with pytest.raises(Trouble, match="Too many of your runs are waiting"):
            refused.result(60)
    go.set()
    assert other.result(60) == "checked"


def test_a_piece_whose_visitor_has_left_makes_room_without_an_error(held):
    turns, go, done, waiting = held
    assert waiting[-1].cancel()
    other = turns.submit(lambda: "checked", OTHER)
    go.set()
    assert other.result(60) == "checked"
    assert [each.result(60) for each in waiting[:2]] == [None, None]
    assert done == [0, 1]


def test_what_fails_says_so_and_the_next_has_its_turn():
    turns = Turns(1, "test")
    with pytest.raises(ZeroDivisionError):
        turns.submit(lambda: 1 // 0, MANY).result(60)
    assert turns.submit(lambda: 3, MANY).result(60) == 3
