"""What the page missed of a long run it asks for, piece by piece, until it has all of it, whatever was lost on the way."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Response, Route, expect

from tests.browser.steps import ended, start, text, trace
from ui.run.messages import RESYNC_EVENTS

PROMPT = "Once upon a time there was an old man who"
LONG = {"max_tokens": 990, "k": 16, "temperature": 2, "seed": 2}
"""It is wild, so that few drafts are kept: there are more events than one answer has."""


@pytest.fixture
def page(page: Page) -> Page:
    """A page whose runs go on to the last of their tokens."""
    ended(page)
    page.get_by_role("button", name="More").click()
    page.get_by_label("Ignore the end token").check()
    return page


def carries_events(message: str) -> bool:
    return ("process_generating" in message or "process_completed" in message) and '\\"events\\"' in message


def lose_updates(page: Page, kept: int, *, end: bool) -> None:
    """Let the first updates of the next run arrive; of the later ones only the last, or none."""

    def lose(route: Route) -> None:
        answer = route.fetch(timeout=0)  # the answer is there when the run is over
        messages = answer.text().split("\n\n")
        updates = [n for n, message in enumerate(messages) if carries_events(message)]
        lost = updates[kept:-1] if end else updates[kept:]
        if updates:
            assert lost
        route.fulfill(response=answer, body="\n\n".join(m for n, m in enumerate(messages) if n not in lost))

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


@pytest.mark.parametrize("end", [True, False], ids=["all but the last", "all"])
def test_a_long_run_is_whole_however_many_updates_were_lost(page, amounts, end):
    lose_updates(page, kept=1, end=end)
    before = start(page, PROMPT, **LONG)
    page.locator(f".ns-stage[data-state=done]:not([data-run={before}])").wait_for()
    ended(page)
    saved = trace(page)
    assert len(saved) > RESYNC_EVENTS
    assert text(page) == saved.text
    assert len(amounts) > 1
    assert max(amounts) == RESYNC_EVENTS


def test_a_run_that_the_server_has_forgotten_does_not_go_on_for_ever(page):
    def forget(route: Route) -> None:
        answer = route.fetch(timeout=0)
        messages = [message for message in answer.text().split("\n\n") if not carries_events(message)]
        first = next(message for message in answer.text().split("\n\n") if carries_events(message))
        renamed = re.sub(r'(run\\":\\")[\w-]+', r"\1forgotten", first)
        route.fulfill(response=answer, body="\n\n".join([renamed, *messages]))

    page.route("**/queue/data*", forget, times=1)
    start(page, PROMPT, max_tokens=30)
    page.locator(".ns-stage[data-run=forgotten][data-state=lost]").wait_for()
    expect(page.locator(".ns-connection")).to_contain_text("no longer has this run")
    expect(page.get_by_role("group", name="Replay").get_by_role("button", name="Play", exact=True)).to_be_visible()
