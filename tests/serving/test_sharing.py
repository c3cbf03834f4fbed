"""Visitors share a decoder by turns; who does not read pauses, and makes room for those who do."""

import threading

import pytest

from naive_speculate import SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import OUTPUT_KINDS, Event, FinishReason
from naive_speculate.serving import LocalEngine, Request, Unavailable
from naive_speculate.serving.local import TURN_TOKENS
from naive_speculate.serving.protocol import Reader

LONG = SamplingParams(max_tokens=100_000, temperature=0, ignore_eos=True)
SHORT = SamplingParams(max_tokens=12, seed=3, ignore_eos=True)


@pytest.fixture
def engine(patient_decoder):
    made = LocalEngine(patient_decoder, max_rows=4, max_waiting=8)
    yield made
    made.close()


ENDED: list["Reading"] = []
"""All runs that are over, in that order."""


@pytest.fixture
def without_turns(monkeypatch):
    """Runs keep their places to the end."""
    monkeypatch.setattr("naive_speculate.serving.local.TURN_TOKENS", 10**9)
    monkeypatch.setattr("naive_speculate.serving.local.FIRST_TOKENS", 10**9)


class Reading:
    """A run and what came of it.

    Attributes:
        unread: Set it for a reader who does not read on.
    """

    def __init__(
        self,
        engine: LocalEngine,
        address: str,
        session: str = "",
        params: SamplingParams = LONG,
        request: Request | None = None,
    ) -> None:
        self.events, self.end = [], None
        self.changed, self.cancel, self.unread = threading.Condition(), threading.Event(), threading.Event()
        reader = Reader(address, session, self.unread.is_set)
        engine.start(request or Request([1, 2], params), self.cancel, self.take, reader)

    def take(self, said) -> None:
        with self.changed:
            self.events += said if isinstance(said, list) else []
            if not isinstance(said, list):
                self.end = (said,)
                ENDED.append(self)
            self.changed.notify_all()

    @property
    def tokens(self) -> int:
        return sum(event.kind in OUTPUT_KINDS for event in self.events)

    def wait(self, condition) -> bool:
        with self.changed:
            return self.changed.wait_for(condition, 120)

    def begins(self) -> bool:
        return self.wait(lambda: self.tokens > 0)

    def ends(self) -> bool:
        return self.wait(lambda: self.end is not None)


def by_row(events: list[Event]) -> list[Trace]:
    """The traces of a run's two sequences."""
    return [Trace(event for event in events if (event.row or 0) == row) for row in range(2)]


def several(engine: LocalEngine, count: int, session: str = "", places: int = 4) -> list[Reading]:
    """Runs of one visitor; the first ones have got all places."""
    first = [Reading(engine, "1.1.1.1", session) for _ in range(places)]
    assert all(run.begins() for run in first)
    return first + [Reading(engine, "1.1.1.1", session) for _ in range(count - places)]


def test_another_visitor_does_not_wait_for_one_with_many_runs(engine, patient_decoder):
    many = several(engine, 10)
    other = Reading(engine, "2.2.2.2", params=SHORT)
    assert other.ends()
    assert Trace(other.events).token_ids == patient_decoder.generate([1, 2], SHORT).token_ids
    assert all(run.end is None for run in many)


def test_so_do_sessions_of_one_address(engine):
    several(engine, 8, "first")
    assert Reading(engine, "1.1.1.1", "second", SHORT).ends()


def test_more_visitors_than_places_all_go_on(patient_decoder):
    engine = LocalEngine(patient_decoder, max_rows=2)
    runs = [Reading(engine, f"1.1.1.{number}") for number in range(4)]  # two of them in spare places
    for run in runs:
        seen = run.tokens
        assert run.wait(lambda run=run, seen=seen: run.tokens > seen + 20)
    engine.close()


def test_a_run_whose_reader_is_behind_pauses_and_then_gives_the_same_text(engine, patient_decoder):
    params = SamplingParams(max_tokens=300, seed=5, ignore_eos=True)
    paused, other = Reading(engine, "1.1.1.1", params=params), Reading(engine, "2.2.2.2")
    assert paused.begins()
    paused.unread.set()
    assert other.wait(lambda seen=other.tokens: other.tokens > seen + 5)
    seen = paused.tokens
    assert other.wait(lambda begun=other.tokens: other.tokens > begun + 100)
    assert paused.tokens == seen < 300
    paused.unread.clear()
    assert paused.ends()
    assert Trace(paused.events).token_ids == patient_decoder.generate([1, 2], params).token_ids


def test_runs_that_nobody_reads_make_room_for_others(engine):
    unread = several(engine, 12)
    for run in unread:
        run.unread.set()
    others = [Reading(engine, f"2.2.2.{number}", params=SHORT) for number in range(6)]
    assert all(run.ends() for run in others)


def test_a_paused_run_ends_where_all_spare_places_are_taken(patient_decoder):
    engine = LocalEngine(patient_decoder, max_rows=1)
    unread = Reading(engine, "1.1.1.1")
    assert unread.begins()
    unread.unread.set()
    others = [Reading(engine, f"2.2.2.{number}") for number in range(3)]
    assert unread.ends()
    assert unread.events[-1].finish_reason == FinishReason.CANCELLED
    assert others[0].begins()
    engine.close()


@pytest.mark.parametrize("drafter", ["model", "suffix", "prompt_lookup", None])
def test_a_run_that_has_had_its_turn_pauses_for_one_that_has_had_none_and_gives_the_same_text(patient_decoder, drafter):
    """The visitor's own, too; it goes on once a place is free."""
    engine = LocalEngine(patient_decoder, max_rows=1)
    params = SamplingParams(max_tokens=3 * TURN_TOKENS, seed=5, ignore_eos=True)
    request = Request([1, 2], params, **({"num_draft_tokens": 0} if drafter is None else {"drafter": drafter}))
    runs = [Reading(engine, "1.1.1.1", request=request) for _ in range(2)]  # the second one in a spare place
    assert all(run.begins() for run in runs)
    last = Reading(engine, "1.1.1.1", params=SHORT)
    assert last.ends()
    expected = patient_decoder.generate(request.prompt, params, num_draft_tokens=request.num_draft_tokens, drafter=drafter)
    for run in runs:
        assert run.ends()
        assert ENDED.index(last) < ENDED.index(run)
        assert Trace(run.events).token_ids == expected.token_ids
    assert Trace(last.events).token_ids == patient_decoder.generate([1, 2], SHORT).token_ids
    engine.close()


def test_so_does_a_run_of_several_sequences(patient_decoder):
    engine = LocalEngine(patient_decoder, max_rows=2)
    params = SamplingParams(n=2, max_tokens=3 * TURN_TOKENS, seed=5, ignore_eos=True)
    first = Reading(engine, "1.1.1.1", params=params)
    assert first.begins()
    others = [Reading(engine, "1.1.1.1", params=SHORT) for _ in range(2)]  # the first one in a spare place
    assert all(run.ends() for run in others)
    assert first.ends()
    assert all(ENDED.index(run) < ENDED.index(first) for run in others)
    alone = [event for events in engine.submit(Request([1, 2], params)) for event in events]
    assert [each.token_ids for each in by_row(first.events)] == [each.token_ids for each in by_row(alone)]
    engine.close()


def test_a_run_waits_for_the_turns_before_it_and_not_for_the_runs(engine):
    """All of one visitor, none of whose runs ends."""
    several(engine, 12)
    last = Reading(engine, "1.1.1.1", "its own", SHORT)  # one of the 12 makes room in the queue
    assert last.ends()


def test_a_run_does_not_pause_for_a_reader_with_as_many_places(patient_decoder):
    engine = LocalEngine(patient_decoder, max_rows=2)
    two = [Reading(engine, f"1.1.1.{number}") for number in range(2)]
    own = [Reading(engine, "1.1.1.1") for _ in range(2)]
    assert all(run.wait(lambda run=run: run.tokens > 3 * TURN_TOKENS) for run in own), (
        "its reader's own runs take turns with it"
    )
    assert two[0].tokens > own[-1].tokens
    engine.close()


def test_who_has_most_waiting_makes_room_in_a_full_queue(engine, without_turns):
    many = several(engine, 12)
    with pytest.raises(Unavailable, match="8 others are waiting"):
        Reading(engine, "1.1.1.1")
    other = Reading(engine, "2.2.2.2", params=SHORT)
    assert many[-1].ends()
    assert isinstance(many[-1].end[0], Unavailable)
    assert "Too many of your runs are waiting" in str(many[-1].end[0])
    assert other.ends()


def test_how_many_wait_before_a_visitor(engine, without_turns):
    anybody, first = Reader("2.2.2.2"), Reader("1.1.1.1")
    assert engine.waiting_before(anybody) is None
    several(engine, 7)
    assert engine.waiting_before(first) == 3
    assert engine.waiting_before(anybody) is None, "its share is free"


def test_nobody_waits_where_all_others_have_had_their_turn(engine):
    many = several(engine, 7)
    assert all(run.wait(lambda run=run: run.tokens > 2 * TURN_TOKENS) for run in many)
    assert many[0].wait(lambda: engine.waiting_before(Reader("1.1.1.1")) is None)


def test_an_engine_reports_a_step_that_does_not_end(tiny_pair, monkeypatch):
    """And one that ends is fine again; closing does not wait for it."""
    monkeypatch.setattr("naive_speculate.serving.local.STUCK_SECONDS", 0.0)
    monkeypatch.setattr("naive_speculate.serving.local.CLOSE_SECONDS", 0.0)
    begun, held = threading.Event(), threading.Event()

    def stuck(history, logits):
        begun.set()
        held.wait(120)
        return logits

    engine = LocalEngine(SpeculativeDecoder(tiny_pair), max_rows=1)
    assert engine.load().ready
    run = Reading(engine, "", params=SamplingParams(max_tokens=1, logits_processors=[stuck]))
    assert begun.wait(60)
    load = engine.load()
    assert (load.ready, load.stuck) == (False, True)
    assert load.reason.startswith("The decoder has made no progress for")
    engine.close()
    held.set()
    assert run.ends()
