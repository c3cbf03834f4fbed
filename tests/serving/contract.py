"""What every engine does, whichever way it decodes: to the page all are the same.

Each engine's tests take these over and say by fixtures what is tested: `engine`; `alone_decoder`, which decodes alone what the
engine decodes among others; and `all_free`, which waits for an engine's rows and returns whether every one is free.
Runs of `LONG` go on for hours, so that none of them ends by itself meanwhile.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from naive_speculate import SamplingParams, Trace
from naive_speculate.events import Event, EventKind, FinishReason
from naive_speculate.serving import Engine, Request, Unavailable
from naive_speculate.serving.run_records import ObservedEngine, RunRecord

LONG = SamplingParams(max_tokens=10**6, seed=3)
PATIENCE = 60.0  # seconds; a busy machine is slow, and nothing here waits longer than it must


def joined(engine: Engine, request: Request) -> Trace:
    return Trace(event for events in engine.submit(request) for event in events)


def delivered(engine: Engine, request: Request, cancel: threading.Event, enough: int = 10**9) -> Trace:
    """What is delivered of a run, which is cancelled after so many events; raises what comes in place of the end."""
    come: SimpleQueue[list[Event] | Exception | None] = SimpleQueue()
    engine.start(request, cancel, come.put)
    trace = Trace()
    while (said := come.get(timeout=PATIENCE)) is not None:
        if isinstance(said, Exception):
            raise said
        trace.events += said
        if len(trace) >= enough:
            cancel.set()
    return trace


class EngineContract:
    def test_each_of_many_gets_the_text_it_would_get_alone(self, engine, alone_decoder, all_free):
        requests = [
            Request(
                [1 + number, 2, 3],
                SamplingParams(max_tokens=4 + number, seed=number, temperature=(0.0, 1.0, 0.6)[number % 3]),
                num_draft_tokens=number % 4,
                verify_strategy=("speculative_sampling", "block_verification")[number % 2],
                detail=("full", "probs", "none")[number % 3],
            )
            for number in range(6)  # more than there are places
        ]
        with ThreadPoolExecutor(6) as pool:
            traces = list(pool.map(lambda request: joined(engine, request), requests))
        for request, trace in zip(requests, traces, strict=True):
            alone = alone_decoder.generate(
                request.prompt,
                request.params,
                num_draft_tokens=request.num_draft_tokens,
                verify_strategy=request.verify_strategy,
            )
            assert trace.token_ids == alone.token_ids
            assert trace.events[0].kind == EventKind.STARTED
            assert trace.events[-1].finish_reason == alone.finish_reason
            assert [event.row for event in trace] == [0] * len(trace)
        assert all_free(engine)

    def test_a_request_that_names_no_drafter_states_the_pair_s_own(self, engine):
        trace = joined(engine, Request([4, 5, 6], SamplingParams(max_tokens=3)))
        assert trace.started.settings["drafter"] == "model"

    def test_several_sequences_of_one_request_are_distinguished_by_their_rows(self, engine, alone_decoder):
        params = SamplingParams(n=3, max_tokens=9, seed=5)
        trace = joined(engine, Request([4, 5, 6], params))
        alone = alone_decoder.generate([4, 5, 6], params)
        found = sorted(Trace(event for event in trace if event.row == row).token_ids for row in range(3))
        assert found == sorted(output.token_ids for output in alone.outputs)

    @pytest.mark.parametrize(
        ("request_", "said"),
        [
            (Request([]), "prompt is empty"),
            (Request([1], chat=True), "chat=True needs a prompt of text"),
            (Request([1], verify_strategy="hope"), "verify_strategy must be one of"),
            (Request([1], drafter="oracle"), "drafter must be one of"),
            (Request([1], SamplingParams(n=99)), "n and best_of may be"),
        ],
    )
    def test_a_request_that_cannot_be_is_refused_by_name(self, engine, request_, said):
        with pytest.raises(ValueError, match=said):
            joined(engine, request_)

    def test_a_cancelled_run_ends_and_says_so(self, engine, all_free):
        cancel = threading.Event()
        events: list[Event] = []
        for some in engine.submit(Request([1, 2], LONG), cancel):
            events += some
            if len(events) > 20 and not cancel.is_set():
                cancel.set()
        assert events[-1].finish_reason == FinishReason.CANCELLED
        assert all_free(engine)

    def test_a_run_that_is_delivered_is_the_run_that_is_read(self, engine, all_free):
        request = Request([2, 3, 4], SamplingParams(n=2, max_tokens=20, seed=6))
        trace, read = delivered(engine, request, threading.Event()), joined(engine, request)
        for row in range(2):
            one, other = (Trace(event for event in found if event.row == row) for found in (trace, read))
            assert one.token_ids == other.token_ids
            assert one.events[-1].finish_reason == other.events[-1].finish_reason
        assert all_free(engine)

    def test_observers_hear_once_of_a_delivered_run_and_before_its_end(self, engine):
        told: list[RunRecord] = []
        trace = delivered(ObservedEngine(engine, [told.append]), Request([1, 2], LONG), threading.Event(), enough=20)
        assert [record.outcome for record in told] == [FinishReason.CANCELLED]
        assert told[0].summary.metrics.num_generated_tokens == len(trace.token_ids) > 0
        with pytest.raises(ValueError, match="prompt is empty"):
            delivered(ObservedEngine(engine, [told.append]), Request([]), threading.Event())
        assert [record.outcome for record in told[1:]] == ["refused"]

    @pytest.mark.parametrize("read", [False, True])
    @pytest.mark.parametrize("way", ["closed", "dropped"])
    def test_a_reader_who_goes_away_frees_the_place(self, engine, all_free, read, way):
        stream = engine.submit(Request([1, 2], LONG))
        if read:
            next(stream)
        if way == "closed":
            stream.close()
        del stream
        assert all_free(engine)

    @pytest.mark.parametrize("read", [False, True])
    def test_observers_hear_of_a_run_whose_reader_goes_away(self, engine, all_free, read):
        told: SimpleQueue[RunRecord] = SimpleQueue()
        stream = ObservedEngine(engine, [told.put]).submit(Request([1, 2], LONG))
        if read:
            next(stream)
        stream.close()
        record = told.get(timeout=PATIENCE)
        assert (record.outcome, record.request.prompt) == ("abandoned", [1, 2])
        assert all_free(engine)
        assert told.empty()

    def test_a_closed_engine_ends_its_runs_and_takes_no_more(self, engine):
        stream = engine.submit(Request([1, 2], LONG))
        first = next(stream)
        engine.close()
        events = first + [event for some in stream for event in some]
        assert events[-1].finish_reason == FinishReason.CANCELLED
        assert not engine.load().ready
        with pytest.raises(Unavailable):
            list(engine.submit(Request([1, 2])))

    def test_a_prompt_that_would_take_long_to_read_is_refused_unread(self, engine):
        with pytest.raises(ValueError, match="prompt has 1000001 characters"):
            joined(engine, Request("a" * (10**6 + 1)))
