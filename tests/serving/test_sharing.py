"""Visitors share a decoder by turns; who does not read pauses, and makes room for those who do."""

import threading

import pytest

from naive_speculate import SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import OUTPUT_KINDS, FinishReason
from naive_speculate.serving import LocalEngine, Request, Unavailable
from naive_speculate.serving.protocol import Reader

LONG = SamplingParams(max_tokens=100_000, temperature=0, ignore_eos=True)
SHORT = SamplingParams(max_tokens=12, seed=3, ignore_eos=True)


class Reading:
    """A run and what came of it. Set `unread` for a reader who does not read on."""

    def __init__(
        self, engine: LocalEngine, address: str, session: str = "", params: SamplingParams = LONG
    ) -> None:
        self.events, self.end = [], None
        self.changed, self.cancel, self.unread = (
            threading.Condition(),
            threading.Event(),
            threading.Event(),
        )
        engine.start(
            Request([1, 2], params),
            self.cancel,
            self.take,
            Reader(address, session, self.unread.is_set),
        )

    def take(self, said) -> None:
        with self.changed:
            self.events += said if isinstance(said, list) else []
            self.end = self.end if isinstance(said, list) else (said,)
            self.changed.notify_all()

    @property
    def tokens(self) -> int:
        return sum(event.kind in OUTPUT_KINDS for event in self.events)

    def wait(self, condition) -> bool:
        with self.changed:
            return self.changed.wait_for(condition, 120)

    def gains(self, tokens: int = 0) -> bool:
        """Whether it gets more than so many tokens from now on."""
        seen = self.tokens
        return self.wait(lambda: self.tokens > seen + tokens)

    def ends(self) -> bool:
        return self.wait(lambda: self.end is not None)


def several(engine: LocalEngine, count: int, session: str = "", places: int = 4) -> list[Reading]:
    """Runs of one visitor; the first ones have got all places."""
    first = [Reading(engine, "1.1.1.1", session) for _ in range(places)]
    assert all(run.wait(lambda run=run: run.tokens) for run in first)
    return first + [Reading(engine, "1.1.1.1", session) for _ in range(count - places)]


@pytest.mark.parametrize(
    ("session", "address", "other"), [("", "2.2.2.2", ""), ("first", "1.1.1.1", "second")]
)
def test_another_visitor_does_not_wait_for_one_with_many_runs_nor_another_session_of_its_address(
    engine, patient_decoder, session, address, other
):
    many = several(engine, 10, session)
    other = Reading(engine, address, other, SHORT)
    assert other.ends()
    assert Trace(other.events).token_ids == patient_decoder.generate([1, 2], SHORT).token_ids
    assert not any(run.events for run in many[4:]), "they wait for a place of their own visitor's"
    assert all(run.end is None for run in many)


def test_more_visitors_than_places_all_go_on(patient_decoder):
    engine = LocalEngine(patient_decoder, max_rows=2)
    runs = [
        Reading(engine, f"1.1.1.{number}") for number in range(4)
    ]  # two of them in spare places
    assert all(run.gains(4) for run in runs)
    engine.close()


def test_a_place_goes_to_who_has_had_none_and_not_to_another_run_of_who_asked_before(
    patient_decoder,
):
    engine = LocalEngine(patient_decoder, max_rows=1)
    first = [Reading(engine, f"1.1.1.{number}") for number in range(3)]  # two in spare places
    assert all(run.wait(lambda run=run: run.tokens) for run in first)
    more = [Reading(engine, f"1.1.1.{number}") for number in range(3)]
    late = Reading(engine, "2.2.2.2")
    first[0].cancel.set()
    assert late.wait(lambda: late.tokens)
    assert not any(run.events for run in more)
    engine.close()


def test_a_run_whose_reader_lags_pauses_and_then_gives_the_same_text(engine, patient_decoder):
    params = SamplingParams(max_tokens=50, seed=5, ignore_eos=True)
    paused, other = Reading(engine, "1.1.1.1", params=params), Reading(engine, "2.2.2.2")
    assert paused.wait(lambda: paused.tokens)
    paused.unread.set()
    assert other.gains(5)
    seen = paused.tokens
    assert other.gains(12)
    assert paused.tokens == seen < 50
    paused.unread.clear()
    assert paused.ends()
    assert Trace(paused.events).token_ids == patient_decoder.generate([1, 2], params).token_ids


def test_a_paused_run_ends_where_all_spare_places_are_taken(patient_decoder):
    engine = LocalEngine(patient_decoder, max_rows=1)
    unread = Reading(engine, "1.1.1.1")
    assert unread.wait(lambda: unread.tokens)
    unread.unread.set()
    others = [Reading(engine, f"2.2.2.{number}") for number in range(3)]
    assert unread.ends()
    assert unread.events[-1].finish_reason == FinishReason.CANCELLED
    assert others[0].wait(lambda: others[0].tokens)
    engine.close()


def test_runs_that_no_one_reads_make_room_for_others(engine):
    unread = several(engine, 12)
    for run in unread:
        run.unread.set()
    others = [Reading(engine, f"2.2.2.{number}", params=SHORT) for number in range(6)]
    assert all(run.ends() for run in others)


def test_who_has_most_waiting_makes_room_in_a_full_queue_and_how_many_wait_before_a_visitor(engine):
    anybody, first = Reader("2.2.2.2"), Reader("1.1.1.1")
    assert engine.waiting_before(anybody) is None
    many = several(engine, 12)
    assert engine.waiting_before(first) == 8
    assert engine.waiting_before(anybody) is None, "its share is free"
    with pytest.raises(Unavailable, match="8 others are waiting"):
        Reading(engine, "1.1.1.1")
    other = Reading(engine, "2.2.2.2", params=SHORT)
    assert many[-1].ends()
    assert isinstance(many[-1].end[0], Unavailable)
    assert "Too many of your runs are waiting" in str(many[-1].end[0])
    assert other.ends()


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
