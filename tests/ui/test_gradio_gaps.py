"""Every reach into Gradio is in `ui/gradio_gaps.py`, and was checked against the installed release."""

import re
from pathlib import Path

import gradio as gr
from gradio import route_utils
from gradio.blocks import Blocks
from gradio.context import LocalContext
from gradio.queueing import Queue

from ui.gradio_gaps import CHECKED, payload

PRIVATE = re.compile(
    r"\._queue\b|\._data\b|_is_server_fn|getfile|get_root_url|LocalContext|GradioMCPServer|process_api|validate_inputs|sleep_when"
)
APART = {Path("ui/gradio_gaps.py"), Path("ui/host/queue.py")}  # the queue is a subclass, as the module says


def test_the_installed_gradio_is_the_one_that_the_patches_were_checked_against():
    assert gr.__version__ == CHECKED


def test_no_other_module_of_the_page_uses_what_gradio_does_not_document():
    found = [path for path in Path("ui").rglob("*.py") if path not in APART and PRIVATE.search(path.read_text("utf-8"))]
    assert found == []


def test_gradio_still_has_what_is_patched():
    assert all(hasattr(Blocks, name) for name in ("process_api", "validate_inputs", "queue"))
    assert callable(route_utils.get_root_url)
    assert all(hasattr(LocalContext, name) for name in ("request", "blocks", "event_id"))
    with gr.Blocks() as page:
        gr.Button().click(lambda: None)
    page.queue()
    assert isinstance(page._queue, Queue)
    assert {"sleep_when_free", "progress_update_sleep_when_free", "event_queue_per_concurrency_id"} <= vars(page._queue).keys()


def test_what_is_no_object_has_no_fields():
    assert payload(gr.EventData(None, {"lesson": 2})) == {"lesson": 2}
    assert payload(gr.EventData(None, "hostile")) == payload(gr.EventData(None, None)) == {}
