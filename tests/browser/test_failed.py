"""An experiment that ends in an error says which, where it stands. A stopped and a refused one are in test_explore.py."""

import gradio as gr
from playwright.sync_api import expect

from ui.host.errors import Page
from ui.run.controls import build_experiment


def breaks():
    yield "1 of 3", 1
    raise RuntimeError("what was sent")


def test_an_error_is_reported_where_the_experiment_stands_without_what_was_sent(chromium):
    with Page() as page:
        run, stop = gr.Button("Run"), gr.Button("Stop")
        build_experiment(run, stop, breaks, [], [gr.Textbox(label="Status"), gr.Number()], "Stopped.", api_visibility="private")
    _, url, _ = page.queue().launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1")
    visitor = chromium.new_page()
    visitor.goto(url)
    visitor.get_by_role("button", name="Run").click()
    expect(visitor.get_by_label("Status")).to_have_value("It ended in an error: the server could not do this (RuntimeError).")
    assert "what was sent" not in visitor.content()
    visitor.close()
    page.close(verbose=False)
