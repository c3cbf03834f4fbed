"""What the page missed of a run it asks for, piece by piece, until it has all of it, whatever was lost on the way."""

import json
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import APIResponse, Browser, Page, Response, Route, expect

from naive_speculate.serving import LocalEngine
from tests.browser.here import served_here
from tests.browser.steps import another_run, ended, link, linked, shown_run, text, trace
from ui.host.catalog import Catalog, ServedPair

RUN = {"prompt": "Once upon a time there was an old man who", "max_tokens": 60, "seed": 2, "ignore_eos": True}
MOST = 40
"""Events in an answer here, of which the run has some times as many."""


@pytest.fixture(scope="module")
def page(small_decoder, chromium: Browser) -> Iterator[Page]:
    catalog = Catalog({"one": ServedPair(LocalEngine(small_decoder))}, measuring=False)
    with pytest.MonkeyPatch.context() as patch, served_here(catalog) as url, chromium.new_context() as context:
        patch.setattr("ui.run.stage.RESYNC_EVENTS", MOST)
        patch.setattr("ui.run.runs.BATCH_SECONDS", 0.0)  # many updates
        page = context.new_page()
        page.goto(url + link(**RUN))
        linked(page, RUN["prompt"])
        yield page


def carries_events(message: str) -> bool:
    return ("process_generating" in message or "process_completed" in message) and '\\"events\\"' in message


def answer_of(route: Route) -> tuple[APIResponse, list[str]]:
    """A stream once it is over, and its messages."""
    answer = route.fetch(timeout=0)
    return answer, answer.text().split("\n\n")


def lose_updates(page: Page, lost: Callable[[list[int]], list[int]]) -> None:
    """Of the next run's updates lose those that `lost` chooses."""

    def lose(route: Route) -> None:
        answer, messages = answer_of(route)
        updates = [n for n, message in enumerate(messages) if carries_events(message)]
        gone = lost(updates)
        assert gone or not updates
        route.fulfill(response=answer, body="\n\n".join(m for n, m in enumerate(messages) if n not in gone))

    page.route("**/queue/data*", lose)


@pytest.fixture
def amounts(page: Page) -> Iterator[list[int]]:
    """Collects how many events each answer to a question for what was missed has."""
    found: list[int] = []

    def answered(response: Response) -> None:
        if "component_server" in response.url and response.request.post_data_json["fn_name"] == "resync":
            found.append(len(json.loads(response.json())["events"]))

    page.on("response", answered)
    yield found
    page.remove_listener("response", answered)
    page.unroute_all()


LOSSES = {
    "all but the first and the last": lambda updates: updates[1:-1],
    "all but the first": lambda updates: updates[1:],
    "three of four": lambda updates: [n for place, n in enumerate(updates) if place % 4],
}


@pytest.mark.parametrize("lost", LOSSES)
def test_a_run_is_whole_however_many_updates_were_lost(page, amounts, lost):
    lose_updates(page, LOSSES[lost])
    before = shown_run(page)
    page.locator("#run").click()
    another_run(page, before)
    ended(page)
    saved = trace(page)
    assert len(saved) > 2 * MOST
    assert text(page) == saved.text
    assert len(amounts) > 1
    assert max(amounts) == MOST


def test_a_run_that_the_server_has_forgotten_does_not_go_on_for_ever(page):
    def forget(route: Route) -> None:
        answer, said = answer_of(route)
        messages = [message for message in said if not carries_events(message)]
        first = next(message for message in said if carries_events(message))
        renamed = re.sub(r'(run\\":\\")[\w-]+', r"\1forgotten", first)
        route.fulfill(response=answer, body="\n\n".join([renamed, *messages]))

    page.route("**/queue/data*", forget, times=1)
    page.locator("#run").click()
    page.locator(".ns-stage[data-run=forgotten][data-state=lost]").wait_for()
    expect(page.locator(".ns-connection")).to_contain_text("no longer has this run")
    expect(page.get_by_role("group", name="Replay").get_by_role("button", name="Play", exact=True)).to_be_visible()
