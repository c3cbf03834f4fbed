"""What every engine does, whichever way it decodes: to the page all are the same.

Each engine's tests take these over and say by fixtures what is tested: `engine`;
`alone_decoder`, which decodes alone what the engine decodes among others; and `all_free`, which
waits for an engine's rows and returns whether every one is free. Runs of `LONG` go on for hours,
so that none of them ends by itself meanwhile.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from naive_speculate import SamplingParams, Trace
from naive_speculate.events import Event, EventKind, FinishReason
from naive_speculate.serving import Engine, Request, Unavailable
from naive_speculate.serving.visit import Observer, Visit

LONG = SamplingParams(max_tokens=10**6, seed=3)
PATIENCE = 60.0  # seconds; a busy machine is slow, and nothing here waits longer than it must


def joined(engine: Engine, request: Request) -> Trace:
    return Trace(event for events in engine.submit(request) for event in events)


def rest_of(come: SimpleQueue[list[Event] | Exception | None]) -> Iterator[list[Event]]:
    """The lists that come until a run ends; raises what comes in place of the end."""
    while (said := come.get(timeout=PATIENCE)) is not None:
        if isinstance(said, Exception):
            raise said
        yield said


def delivered(
    engine: Engine,
    request: Request,
    cancel: threading.Event,
    enough: int = 10**9,
    observers: Sequence[Observer] = (),
) -> Trace:
    """What is delivered of a run, which is cancelled after so many events; raises what comes in
    place of the end."""
    come: SimpleQueue[list[Event] | Exception | None] = SimpleQueue()
    Visit(request, observers).start(engine, cancel, come.put)
    trace = Trace()
    for events in rest_of(come):
        trace.events += events
        if len(trace) >= enough:
            cancel.set()
    return trace


class EngineContract:
    def test_each_of_many_gets_the_text_it_would_get_alone(self, engine, alone_decoder, all_free):
        requests = [
            Request(
                [1 + number, 2, 3],
                SamplingParams(
                    max_tokens=4 + number, seed=number, temperature=(0.0, 1.0, 0.6)[number % 3]
                ),
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
            assert trace.started.settings["drafter"] == "model", "the pair's own"
            assert trace.events[-1].finish_reason == alone.finish_reason
            assert [event.row for event in trace] == [0] * len(trace)
        assert all_free(engine)

    def test_a_run_that_is_delivered_is_the_run_that_is_read_and_rows_distinguish_its_sequences(
        self, engine, alone_decoder, all_free
    ):
        request = Request([4, 5, 6], SamplingParams(n=3, max_tokens=9, seed=5))
        alone = alone_decoder.generate(request.prompt, request.params)
        expected = sorted((output.token_ids, output.finish_reason) for output in alone.outputs)
        for trace in (delivered(engine, request, threading.Event()), joined(engine, request)):
            rows = [trace.row(row) for row in range(3)]
            assert sorted((row.token_ids, row.events[-1].finish_reason) for row in rows) == expected
        assert all_free(engine)

    def test_a_request_that_cannot_be_is_refused_by_name(self, engine):
        for request, said in (
            (Request([]), "prompt is empty"),
            (Request([1], chat=True), "chat=True needs a prompt of text"),
            (Request([1], verify_strategy="hope"), "verify_strategy must be one of"),
            (Request([1], drafter="oracle"), "drafter must be one of"),
            (Request([1], SamplingParams(n=99)), "n and best_of may be"),
            (
                Request("a" * (10**6 + 1)),
                "prompt has 1000001 characters",
            ),  # and not read, which would take long
        ):
            with pytest.raises(ValueError, match=said):
                joined(engine, request)

    def test_a_cancelled_run_ends_and_observers_hear_once_of_it_and_before_its_end(
        self, engine, all_free
    ):
        told: list[Visit] = []
        trace = delivered(
            engine, Request([1, 2], LONG), threading.Event(), enough=20, observers=[told.append]
        )
        assert trace.events[-1].finish_reason == FinishReason.CANCELLED
        assert [record.outcome for record in told] == [FinishReason.CANCELLED]
        assert told[0].summary.metrics.num_generated_tokens == len(trace.token_ids) > 0
        assert all_free(engine)
        with pytest.raises(ValueError, match="prompt is empty"):
            delivered(engine, Request([]), threading.Event(), observers=[told.append])
        assert [record.outcome for record in told[1:]] == ["refused"]

    @pytest.mark.parametrize("read", [False, True])
    @pytest.mark.parametrize("way", ["closed", "dropped"])
    def test_a_reader_who_goes_away_frees_the_place_and_observers_hear_of_it(
        self, engine, all_free, read, way
    ):
        told: SimpleQueue[Visit] = SimpleQueue()
        stream = Visit(Request([1, 2], LONG), [told.put]).submit(engine)
        if read:
            next(stream)
        if way == "closed":
            stream.close()
        del stream
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
