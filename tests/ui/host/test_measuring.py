"""Measurements make way for visitors; what visitors send is checked in turn; errors contain no
words of theirs."""

import asyncio
import json
import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import gradio as gr
import pytest

from naive_speculate import SamplingParams, Trace
from naive_speculate.events import EventKind, FinishReason
from naive_speculate.serving import Request
from naive_speculate.serving.visit import Visit
from ui.host.catalog import ELSEWHERE, NEVER, Catalog, ServedPair
from ui.host.errors import MOST_CHARACTERS, Page
from ui.host.measuring import BUSY, CAME, SHORT, NotMeasured, in_turn
from ui.run.runs import Runs, ShownRun
from ui.run.stage import FAILED, GOES_ON, NONE_SAVED, STOPPED, _server_functions, speedup_of

REQUEST = Request(
    [1, 2, 3], SamplingParams(max_tokens=48, seed=5, ignore_eos=True), num_draft_tokens=3
)


TOKENS = 24


@pytest.fixture
def watched(monkeypatch):
    """The requests of measurements, and what to call with every list of their events. Measured
    over fewer tokens, and once however busy the machine is."""
    found = SimpleNamespace(asked=[], then=lambda: None)

    class Watched(Visit):
        def submit(self, *args):
            found.asked.append(self.request)
            for events in super().submit(*args):
                yield events
                found.then()

    monkeypatch.setattr("ui.host.measuring.Visit", Watched)
    monkeypatch.setattr("ui.host.measuring.MOST_TOKENS", TOKENS)
    monkeypatch.setattr("ui.host.measuring.MOST_REPEATS", 1)
    return found


@pytest.fixture
def records():
    return []


@pytest.fixture
def catalog(tiny_engine, watched, records):
    pairs = {"pair": ServedPair(tiny_engine, measurable=True)}
    return Catalog(pairs, observers=[records.append])


def test_the_same_prompt_is_decoded_plain_with_drafts_and_plain_again_and_plain_against_plain(
    catalog, watched, records
):
    """First the whole run without drafts, for those who follow it."""
    for lane, first in ((None, TOKENS), ([], REQUEST.params.max_tokens)):
        watched.asked.clear()
        found = catalog.measure("", REQUEST, lane)
        assert all(
            request.prompt == REQUEST.prompt and request.params.seed == 5
            for request in watched.asked
        )
        asked = [(request.num_draft_tokens, request.params.max_tokens) for request in watched.asked]
        assert asked == [(0, first), (3, TOKENS), (0, TOKENS)]
        assert 0 < found.low <= found.value <= found.high
        assert found.machine
    assert sum(event.kind == EventKind.BONUS for event in lane) == REQUEST.params.max_tokens
    found = catalog.measure("", replace(REQUEST, num_draft_tokens=0))
    assert found.low <= found.value <= found.high
    assert (found.tokens_per_round, found.num_draft_tokens, found.draft_cost) == (1, 0, None)
    assert records == []  # it is no run


def test_while_others_decode_nothing_is_measured_and_one_who_decodes_past_the_catalog_ends_it_too(
    catalog, watched, tiny_engine
):
    cancel = threading.Event()

    def come() -> None:
        if not others:
            others.append(
                tiny_engine.submit(
                    Request([1], SamplingParams(max_tokens=400, ignore_eos=True)), cancel
                )
            )

    others: list = []
    come()
    next(others[0])
    with pytest.raises(NotMeasured, match=BUSY) as why:
        catalog.measure("", REQUEST)
    assert (why.value.again, watched.asked) == (True, [])
    cancel.set()
    list(others.pop())
    cancel.clear()
    watched.then = come
    with pytest.raises(NotMeasured, match=CAME):
        catalog.measure("", REQUEST)
    assert len(watched.asked) == 1
    cancel.set()
    list(others[0])


def test_several_sequences_of_one_measurement_do_not_take_each_other_for_visitors(catalog, watched):
    seen = []
    watched.then = lambda: seen.append(catalog.load().running + catalog.load().waiting)
    events = catalog.events("", replace(REQUEST, params=replace(REQUEST.params, n=2)))
    assert {event.row for event in events} == {0, 1}
    assert set(seen) == {0}


def test_a_visitor_who_comes_ends_it_at_once_and_is_counted_alone(catalog, watched, records):
    loads, came = [], threading.Event()

    def come() -> None:
        loads.append(catalog.load())
        if not came.is_set():
            came.set()
            assert list(
                catalog.stream(
                    "",
                    Request([4], SamplingParams(max_tokens=5, ignore_eos=True)),
                    threading.Event(),
                )
            )

    watched.then = come
    with pytest.raises(NotMeasured, match=CAME) as why:
        catalog.measure("", REQUEST)
    assert why.value.again
    assert (loads[0].running, loads[0].waiting) == (0, 0)
    assert len(records) == 1
    assert [request.num_draft_tokens for request in watched.asked].count(
        3
    ) == 0  # nothing after the one that was cut
    watched.then = lambda: None
    assert catalog.measure("", REQUEST).value > 0


def test_a_run_that_is_refused_does_not_end_it(catalog, watched):
    refused = []

    def come() -> None:
        with pytest.raises(ValueError, match="prompt") as why:
            catalog.start("", Request([1] * 5000), threading.Event(), lambda _: None)
        refused.append(why.value)

    watched.then = come
    assert catalog.measure("", REQUEST).value > 0
    assert refused


def test_why_there_is_no_figure_and_another_try_will_not_help(catalog, watched, tiny_engine):
    elsewhere = Catalog({"pair": ServedPair(tiny_engine)})
    never = Catalog({"pair": ServedPair(tiny_engine, measurable=True)}, measuring=False)
    short = Request([1], SamplingParams(max_tokens=3, ignore_eos=True), num_draft_tokens=0)
    for measure, request, said in (
        (elsewhere.measure, REQUEST, ELSEWHERE),
        (never.measure, REQUEST, NEVER),
        (never.events, REQUEST, NEVER),
        (catalog.measure, short, SHORT),
    ):
        assert watched.asked == []
        with pytest.raises(NotMeasured) as why:
            measure("", request)
        assert (str(why.value), why.value.again) == (said, False)


@pytest.fixture(scope="module")
def saved(tiny_decoder) -> str:
    return tiny_decoder.generate([1, 2, 3], REQUEST.params, num_draft_tokens=3).trace.to_jsonl()


@pytest.fixture
def ended(catalog, saved):
    """A run that has ended, and can be measured."""
    run = ShownRun(Trace.from_jsonl(saved))
    run.measure = lambda: catalog.measure("", REQUEST)
    return run


def test_a_run_is_measured_once_and_its_trace_keeps_it(ended, watched):
    said = speedup_of(ended, asked=False)
    assert said["speedup"]["value"] > 0
    count = len(watched.asked)
    assert speedup_of(ended, asked=True) == said
    assert len(watched.asked) == count
    assert ended.trace[-1].speedup.value == said["speedup"]["value"]
    reopened = ShownRun(Trace.from_jsonl(ended.trace.to_jsonl()))
    assert speedup_of(reopened, asked=False) == said


def asked_by_page(run: ShownRun, asked: bool) -> dict:
    """What the page's function says of a run's speedup."""
    runs = Runs()
    runs.add("visitor", run)
    (speedup,) = [each for each in _server_functions(runs) if each.__name__ == "speedup"]
    return json.loads(asyncio.run(speedup([run.id, asked])))


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("reason", FinishReason)
def test_a_finished_run_is_measured_and_a_stopped_one_for_those_who_ask(ended, reason, asked):
    ended.events[-1].finish_reason = reason
    said = asked_by_page(ended, asked)
    if reason == FinishReason.ERROR:
        assert said == {"reason": FAILED, "again": False}
    elif reason == FinishReason.CANCELLED and not asked:
        assert said == {"reason": STOPPED, "again": True}
    else:
        assert said["speedup"]["value"] > 0
    reopened = asked_by_page(ShownRun(ended.events), asked)
    assert reopened == (said if "speedup" in said else {"reason": NONE_SAVED, "again": False})


def test_a_run_that_goes_on_is_not_measured(ended):
    ended.events.pop()
    assert asked_by_page(ended, True)["reason"] == GOES_ON


def test_who_waits_for_a_measurement_takes_no_thread():
    go_on, working = threading.Event(), asyncio.Event()
    threads: set[int] = set()

    async def all_of_them() -> list[dict[str, object]]:
        loop = asyncio.get_running_loop()

        def work() -> dict[str, object]:
            threads.add(threading.get_ident())
            loop.call_soon_threadsafe(working.set)
            assert go_on.wait(60)
            return {"done": True}

        before = threading.active_count()
        asked = [asyncio.create_task(in_turn(work)) for _ in range(50)]
        await working.wait()
        assert threading.active_count() <= before + 1
        go_on.set()
        return await asyncio.gather(*asked)

    assert asyncio.run(all_of_them()) == [{"done": True}] * 50
    assert len(threads) == 1


def test_what_does_not_begin_in_time_is_not_done(monkeypatch):
    go_on, done = threading.Event(), list[str]()

    async def both() -> tuple[dict[str, object], dict[str, object]]:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        def first() -> dict[str, object]:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(60)
            return {"first": True}

        one = asyncio.create_task(in_turn(first))
        await begun.wait()
        monkeypatch.setattr(
            "ui.host.measuring.PATIENCE_SECONDS", 0.0
        )  # now, as the first one must begin
        other = await in_turn(lambda: {"second": done.append("second")})
        go_on.set()
        return await one, other

    assert asyncio.run(both()) == ({"first": True}, {"reason": BUSY, "again": True})
    assert done == []


def test_sessions_take_turns_at_measurements():
    go_on, done = threading.Event(), list[str]()

    async def all_of_them() -> None:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        def first() -> dict[str, object]:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(60)
            return {}

        def work(name: str) -> dict[str, object]:
            done.append(name)
            return {}

        asked = [asyncio.create_task(in_turn(first, "many"))]
        await begun.wait()
        for number, session in enumerate(("many", "many", "one")):
            piece = partial(work, f"{session} {number}")
            asked.append(asyncio.create_task(in_turn(piece, session)))
        await asyncio.sleep(0)  # all of them ask
        go_on.set()
        await asyncio.gather(*asked)

    asyncio.run(all_of_them())
    assert done == ["one 2", "many 0", "many 1"]


def test_the_page_s_functions_that_measure_do_not_block():
    functions = {function.__name__: function for function in _server_functions(Runs())}
    assert [
        name for name, function in functions.items() if asyncio.iscoroutinefunction(function)
    ] == ["unguided", "speedup"]


SECRET = "Dear diary, "


def fails(text: str) -> str:
    try:
        return {"known": text}[text]
    except KeyError as error:
        raise RuntimeError(text) from error


def refuses(text: str) -> str:
    raise gr.Error(text, title="No", print_exception=False)


def test_a_failure_is_reported_to_the_operator_without_its_words_and_a_refusal_up_to_a_length(
    caplog,
):
    with Page() as page:
        field = gr.Textbox()
        for function in (refuses, fails):
            field.submit(function, field, field)

    def answer_of(function, text: str) -> gr.Error:
        with pytest.raises(gr.Error) as refused:
            asyncio.run(page.process_api([refuses, fails].index(function), [text]))
        return refused.value

    error = answer_of(refuses, "prompt is empty")
    assert (error.message, error.title) == ("prompt is empty", "No")
    assert len(answer_of(refuses, SECRET * 1000).message) < MOST_CHARACTERS + 5
    assert caplog.text == ""
    error = answer_of(fails, SECRET)
    assert ("RuntimeError" in error.message, error.print_exception) == (True, False)
    assert SECRET not in error.message + caplog.text
    assert 0 < caplog.text.index("KeyError") < caplog.text.index("RuntimeError"), (
        "the first cause first"
    )
    assert 'return {"known": text}[text]' in caplog.text, "the line of code that failed"
