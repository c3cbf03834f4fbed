"""The queue of calls: it is shared by turns, so that no visitor's calls keep those of others out."""

import threading

import gradio as gr
import pytest

from naive_speculate.serving.turns import TOO_MANY
from tests.hosting.http import get, post, serve
from ui.host.errors import Page

MANY, OTHER = "1.1.1.1", "2.2.2.2"


class Held:
    """A page with one function, which handles one call at a time, and none before `go` is set; three calls may wait."""

    def __init__(self) -> None:
        self.begun, self.go, self.over = threading.Event(), threading.Event(), threading.Event()
        self.done: list[str] = []
        with Page() as self.page:
            text = gr.Textbox()
            gr.Button().click(self.work, text, None, concurrency_limit=1)
        serve(self.page, 3)

    def work(self, name: str) -> None:
        self.begun.set()
        assert self.go.wait(60)
        self.done.append(name)
        if len(self.done) == 4:
            self.over.set()

    def join(self, name: str, address: str) -> int:
        (number,) = self.page.fns
        call = {"data": [name], "fn_index": number, "session_hash": name}
        return post(f"{self.page.local_url}gradio_api/queue/join", call, **{"X-Forwarded-For": address})[0]


@pytest.fixture
def held():
    made = Held()
    assert made.join("many 0", MANY) == 200
    assert made.begun.wait(60)
    assert [made.join(f"many {number}", MANY) for number in (1, 2, 3)] == [200] * 3
    yield made
    made.go.set()
    made.page.close(verbose=False)


def test_a_full_queue_has_room_for_another_visitor_who_is_next(held):
    assert held.join("many 4", MANY) == 503
    assert held.join("other", OTHER) == 200
    assert TOO_MANY in get(f"{held.page.local_url}gradio_api/queue/data?session_hash=many%203")
    held.go.set()
    assert held.over.wait(60)
    assert held.done[0] == "many 0"
    assert held.done.index("other") < held.done.index("many 1")
