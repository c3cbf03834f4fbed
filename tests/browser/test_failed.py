"""An experiment that ends otherwise than it should says how, where it stands: stopped, or in an error, and in which."""

import threading

import gradio as gr
import pytest
from playwright.sync_api import expect

from ui.host.errors import Page
from ui.run.controls import build_experiment

PACE = threading.Event()
"""Never set: what an endless experiment takes its time by."""
SEEN = threading.Event()
"""Set once the page shows the first word of an experiment that cannot begin."""


def count(most: float):
    """Says how far it is until it breaks."""
    number = 0
    while True:
        number += 1
        if number > most:
            raise RuntimeError("what was sent")
        yield f"{number} of {most}", number
        PACE.wait(0.05)


def refuse(most: float):
    """Asks for something that cannot be."""
    yield "Starting …", 0
    SEEN.wait()
    raise ValueError(f"most cannot be {most}")


@pytest.fixture(scope="module")
def experiments():
    """A page with an experiment that breaks, one that goes on for ever, and one that cannot begin."""
    with Page() as page:
        for name, work, most in (("breaks", count, 3), ("lasts", count, 10**9), ("refuses", refuse, 0)):
            amount = gr.Number(most, visible=False)
            run, stop = gr.Button("Run", elem_id=f"{name}-run"), gr.Button("Stop", elem_id=f"{name}-stop")
            outputs = [gr.Textbox(elem_id=name, label=name), gr.Number(label=f"{name} at")]
            build_experiment(run, stop, work, [amount], outputs, "Stopped.", api_visibility="private")
    _, url, _ = page.queue().launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1")
    yield url
    page.close(verbose=False)


def test_an_error_is_reported_where_the_experiment_stands_and_only_who_stops_it_reads_that_it_was_stopped(
    chromium, experiments
):
    page = chromium.new_page()
    page.goto(experiments)
    page.locator("#breaks-run").click()
    said = page.locator("#breaks textarea")
    expect(said).to_have_value("It ended in an error: the server could not do this (RuntimeError).")
    assert "what was sent" not in page.content()
    page.locator("#lasts-run").click()
    said = page.locator("#lasts textarea")
    page.wait_for_function("() => document.querySelector('#lasts textarea').value.includes('of')")
    page.locator("#lasts-stop").click()
    expect(said).to_have_value("Stopped.")
    page.locator("#refuses-run").click()
    expect(page.locator("#refuses textarea")).to_have_value("Starting …")
    SEEN.set()
    expect(page.get_by_test_id("toast-body").filter(has_text="most cannot be 0")).to_be_visible()
    expect(page.locator("#refuses textarea")).to_have_value("")
    page.close()
