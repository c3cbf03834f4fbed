"""The order of what waits, and what is refused where too much does: whichever jobs wait."""

import threading
from collections import Counter
from contextvars import ContextVar
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive_speculate.serving.protocol import Reader, Unavailable
from naive_speculate.serving.turns import GROUPS, Job, Pool, Turns, by_turns, num_rows, refused

READERS = st.builds(Reader, st.sampled_from("ab"), st.sampled_from("xyz"))
JOBS = st.builds(Job, READERS, num_rows=st.integers(1, 4))


def has(jobs: list[Job], group) -> Counter:
    """How many places the jobs of each address, or each session, take."""
    rows = Counter()
    for job in jobs:
        rows[group(job.reader)] += job.num_rows
    return rows


@given(waiting=st.lists(JOBS, max_size=8), new=JOBS, spare=st.integers(0, 6))
def test_who_waits_with_most_makes_room_and_what_waits_never_takes_more_places(waiting, new, spare):
    most = num_rows(waiting) + spare
    dropped = refused(waiting, new, most)
    left = [job for job in [*waiting, new] if job is not dropped]
    assert num_rows(left) <= most
    assert (dropped is None) == (new.num_rows <= spare), "who has room is not refused"
    if dropped is None:
        return
    for group in GROUPS:
        rows, own = has(waiting, group), has([*waiting, new], group)[group(new.reader)]
        top = max(rows.values(), default=0)
        if top > own:
            holder = next(name for name, count in rows.items() if count == top)
            theirs = [job for job in waiting if group(job.reader) == holder]
            large = [job for job in theirs if job.num_rows >= new.num_rows]
            assert dropped is (large[-1] if large else new)
            return
    assert dropped is new


@given(jobs=st.lists(JOBS, max_size=10), past=st.lists(READERS, max_size=6))
def test_addresses_take_turns_then_sessions_and_who_was_served_longest_ago_comes_first(jobs, past):
    turns = Turns[Job]()
    for reader in past:
        turns.add(job := Job(reader))
        turns.begin(job)
    for job in jobs:
        assert turns.add(job) is None
    order = turns.order(reversed(jobs))
    assert sorted(order, key=id) == sorted(jobs, key=id)
    last = {group(reader): at for at, reader in enumerate(past) for group in GROUPS}
    for group, within in ((GROUPS[0], lambda job: ()), (GROUPS[1], lambda job: job.reader.address)):
        taken: dict = {}
        for job in order:
            mine, kin = group(job.reader), within(job)
            others = {group(each.reader): each for each in jobs if within(each) == kin}
            count = taken.get(mine, 0)
            for other in others:
                left = sum(group(job.reader) == other for job in jobs) - taken.get(other, 0)
                assert left == 0 or taken.get(other, 0) >= count, "nobody has two turns more"
            fresh = [name for name in others if name not in taken]
            if mine in fresh:
                firsts = {
                    name: min(each.number for each in jobs if group(each.reader) == name)
                    for name in fresh
                }
                assert mine == min(fresh, key=lambda name: (last.get(name, -1), firsts[name]))
            taken[mine] = count + 1
    for session in {GROUPS[1](job.reader) for job in jobs}:
        mine = [job.number for job in order if GROUPS[1](job.reader) == session]
        assert mine == sorted(mine)
    keyed = by_turns(jobs, key=lambda job: -job.number, groups=())
    assert [job.number for job in keyed] == sorted((job.number for job in jobs), reverse=True)


MANY, OTHER = Reader("1.1.1.1", "one"), Reader("2.2.2.2", "two")


@pytest.fixture
def held():
    """A pool of one thread, with three pieces of a visitor: the first is being worked on until
    `go` is set."""
    turns, begun, go, done = Pool(1, "test", most=3), threading.Event(), threading.Event(), []

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
    for left in (waiting[-1], turns.submit(lambda: None, MANY)):
        with pytest.raises(Unavailable, match="Too many of your runs are waiting"):
            left.result(60)
    go.set()
    assert other.result(60) == "checked"


def test_a_piece_whose_visitor_has_left_makes_room_without_an_error_and_what_fails_says_so(held):
    turns, go, done, waiting = held
    assert waiting[-1].cancel()
    other = turns.submit(lambda: "checked", OTHER)
    go.set()
    assert other.result(60) == "checked"
    assert [each.result(60) for each in waiting[:2]] == [None, None]
    assert done == [0, 1]
    with pytest.raises(ZeroDivisionError):
        turns.submit(lambda: 1 // 0, MANY).result(60)
    assert turns.submit(lambda: 3, MANY).result(60) == 3, "the next has its turn"


def test_a_piece_of_work_has_the_context_of_who_submits_it():
    asked = ContextVar("asked", default=0)
    asked.set(3)
    assert Pool(1, "test").submit(asked.get, MANY).result(60) == 3
