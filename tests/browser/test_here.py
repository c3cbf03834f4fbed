"""Pages of this process: runs that wait for a pair or a free row, a page below a path, and what
was missed of a run."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Response, Route, expect

from naive_speculate import SpeculativeDecoder
from naive_speculate.infer.forward import forward_of
from naive_speculate.infer.slots import SlotPool
from naive_speculate.models.known import KNOWN
from naive_speculate.serving import Later, LocalEngine
from tests.browser.steps import (
    another_run,
    ended,
    link,
    linked,
    open_drawer,
    set_number,
    shown_run,
    text,
    toast,
    trace,
)
from tests.hosting.http import get, served_here
from ui.host.catalog import LOADING, Catalog, ServedPair, expected


@pytest.fixture(scope="module")
def served(small_decoder: SpeculativeDecoder) -> Iterator[tuple[str, Callable[[], None]]]:
    """A page with one row for runs, and the function that loads its first pair."""
    ready = threading.Event()

    def wait() -> SpeculativeDecoder:
        ready.wait()
        return small_decoder

    about = replace(expected(KNOWN["smollm2"], 4), chat=small_decoder.admission.has_chat_template)
    later = LocalEngine(Later(wait, about, LOADING.format("SmolLM2")), max_rows=1)
    pairs = {"SmolLM2": ServedPair(later), "other": ServedPair(LocalEngine(small_decoder))}
    catalog = Catalog(pairs, measuring=False, deferred={"SmolLM2": later})
    loading = threading.Thread(target=catalog.load_later)

    def load() -> None:
        ready.set()
        loading.join()

    with served_here(catalog) as page:
        loading.start()
        yield page.local_url, load
        load()


def test_a_run_waits_for_the_pair_and_the_notice_goes_by_itself(served, chromium: Browser):
    (url, load), page = served, chromium.new_page()
    page.goto(url)
    notice, choice = page.locator("#loading .ns-notice"), page.locator("#pair input")
    expect(notice).to_have_text("SmolLM2 is loading. Its runs start as soon as it is ready.")
    open_drawer(page)
    expect(choice).to_have_value("SmolLM2 (loading)")
    set_number(page, "max-tokens", 12)
    page.locator("#prompt textarea").fill("Once upon a time")
    before = shown_run(page)
    page.locator("#run").click()
    toast(page, "SmolLM2 is loading")
    load()
    another_run(page, before)
    ended(page)
    assert text(page)
    for _ in range(2):
        expect(notice).to_have_count(0)
        expect(choice).to_have_value("SmolLM2")
        page.reload()  # who comes later finds the page as it is now
        open_drawer(page)
    page.context.close()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The target takes its time, but no core's, so that no run ends by itself while a test looks
    on."""
    goes_on = threading.Event()

    def waiting(pool: SlotPool) -> Callable[..., Any]:
        forward = forward_of(pool.model)
        return lambda *args, **kwargs: (goes_on.wait(0.3), forward(*args, **kwargs))[1]

    monkeypatch.setattr(SlotPool, "forward", property(waiting))  # of batches that exist, too
    yield
    goes_on.set()


def test_a_visitor_who_waits_reads_it_and_a_closed_tab_makes_way(
    served, slow: None, chromium: Browser
):
    """One place and a spare one: the third visitor waits."""
    url, load = served
    load()
    with chromium.new_context() as context:

        def visit(prompt: str) -> tuple[Page, str]:
            page = context.new_page()
            page.goto(
                url + link(prompt=prompt, num_draft_tokens=0, max_tokens=900, ignore_eos=True)
            )
            linked(page, prompt)
            page.locator("#tokens [data-step]").first.wait_for()
            before = shown_run(page)
            page.locator("#run").click()
            return page, before

        animals = ("The fox", "The hen")
        first, second = map(visit, animals)
        for (page, before), mine in zip((first, second), animals, strict=True):
            another_run(page, before)
            words = page.locator("#tokens [data-kind=prompt]")
            words.first.wait_for()  # a frame later than the run
            assert "".join(words.all_text_contents()) == mine, "no one sees another's run"
        third, before = visit("The frog")
        expect(third.get_by_text(re.compile("1 of 1 decoder slots are busy"))).to_be_visible()
        assert shown_run(third) == before
        health = json.loads(get(url + "health"))
        assert (health["running"], health["waiting"]) == (2, 1)
        first[0].close()
        another_run(third, before)


def test_through_a_proxy_that_has_put_it_deeper_the_page_finds_its_scripts(
    small_decoder, chromium: Browser, monkeypatch
):
    monkeypatch.setenv("GRADIO_ROOT_PATH", "/deep")
    catalog = Catalog({"one": ServedPair(LocalEngine(small_decoder))}, measuring=False)
    with served_here(catalog) as served, chromium.new_context() as context:
        url, page = served.local_url, context.new_page()

        def pass_on(route: Route) -> None:
            path = route.request.url.removeprefix(url)
            if path.startswith("deep/") and "heartbeat" not in path:  # which never ends
                route.fulfill(response=route.fetch(url=url + path.removeprefix("deep/")))
            else:
                route.abort()

        page.route(f"{url}**", pass_on)
        page.goto(f"{url}deep/")
        page.locator("#tokens [data-step]").first.wait_for()
        # a stream of events that is still passed on has no reader
        page.unroute_all(behavior="ignoreErrors")


RUN = {
    "prompt": "Once upon a time there was an old man who",
    "max_tokens": 60,
    "seed": 2,
    "ignore_eos": True,
}
MOST = 40
"""Events in an answer here, of which the run has some times as many."""


@pytest.fixture(scope="module")
def page(small_decoder, chromium: Browser) -> Iterator[Page]:
    catalog = Catalog({"one": ServedPair(LocalEngine(small_decoder))}, measuring=False)
    with (
        pytest.MonkeyPatch.context() as patch,
        served_here(catalog) as served,
        chromium.new_context() as context,
    ):
        patch.setattr("ui.run.stage.RESYNC_EVENTS", MOST)
        patch.setattr("ui.run.runs.BATCH_SECONDS", 0.0)  # many updates
        page = context.new_page()
        page.goto(served.local_url + link(**RUN))
        linked(page, RUN["prompt"])
        yield page


def carries_events(message: str) -> bool:
    return (
        "process_generating" in message or "process_completed" in message
    ) and '\\"events\\"' in message


def change_stream(
    page: Page, change: Callable[[list[str], list[int]], list[str]], **how: int
) -> None:
    """Give the next run's stream, once it is over, as `change` makes it of its messages and the
    numbers of its updates."""

    def changed(route: Route) -> None:
        answer = route.fetch(timeout=0)
        messages = answer.text().split("\n\n")
        updates = [n for n, message in enumerate(messages) if carries_events(message)]
        route.fulfill(response=answer, body="\n\n".join(change(messages, updates)))

    page.route("**/queue/data*", changed, **how)


LOSSES = {
    "all but the first and the last": lambda updates: updates[1:-1],
    "all but the first": lambda updates: updates[1:],
    "three of four": lambda updates: [n for place, n in enumerate(updates) if place % 4],
}


@pytest.mark.parametrize("lost", LOSSES)
def test_a_run_is_whole_however_many_updates_were_lost(page, lost):
    amounts: list[int] = []  # of events in each answer to a question for what was missed

    def answered(response: Response) -> None:
        if (
            "component_server" in response.url
            and response.request.post_data_json["fn_name"] == "resync"
        ):
            amounts.append(len(json.loads(response.json())["events"]))

    def lose(messages: list[str], updates: list[int]) -> list[str]:
        gone = LOSSES[lost](updates)
        assert gone or not updates
        return [message for n, message in enumerate(messages) if n not in gone]

    page.on("response", answered)
    change_stream(page, lose)
    before = shown_run(page)
    page.locator("#run").click()
    another_run(page, before)
    ended(page)
    saved = trace(page)
    assert len(saved) > 2 * MOST
    assert text(page) == saved.text
    assert len(amounts) > 1
    assert max(amounts) == MOST
    page.remove_listener("response", answered)
    page.unroute_all()


def test_a_run_that_the_server_has_forgotten_does_not_go_on_for_ever(page):
    def forget(messages: list[str], updates: list[int]) -> list[str]:
        renamed = re.sub(r'(run\\":\\")[\w-]+', r"\1forgotten", messages[updates[0]])
        return [renamed, *(message for n, message in enumerate(messages) if n not in updates)]

    change_stream(page, forget, times=1)
    page.locator("#run").click()
    page.locator(".ns-stage[data-run=forgotten][data-state=lost]").wait_for()
    expect(page.locator(".ns-connection")).to_contain_text("no longer has this run")
    expect(page.locator(".ns-play[data-going=false]")).to_be_visible()
