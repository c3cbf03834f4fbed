"""Errors of the page's own functions: the log contains where they came from, and not what was in them."""

import asyncio

import gradio as gr
import pytest

from ui.host.errors import MOST_CHARACTERS, Page

SECRET = "Dear diary, "


def fails(text: str) -> str:
    try:
        return {"known": text}[text]
    except KeyError as error:
        raise RuntimeError(text) from error


def refuses(text: str) -> str:
    raise gr.Error(text, title="No", print_exception=False)


def answer_to(page: Page, text: str) -> gr.Error:
    with pytest.raises(gr.Error) as refused:
        asyncio.run(page.process_api(0, [text]))
    return refused.value


def page_that(function) -> Page:
    with Page() as page:
        field = gr.Textbox()
        field.submit(function, field, field)
    return page


def test_a_failure_is_reported_to_the_operator_without_its_words(caplog):
    error = answer_to(page_that(fails), SECRET)
    assert SECRET not in error.message
    assert "RuntimeError" in error.message
    assert not error.print_exception
    assert SECRET not in caplog.text
    assert 0 < caplog.text.index("KeyError") < caplog.text.index("RuntimeError"), "the first cause first"
    assert 'return {"known": text}[text]' in caplog.text, "the line of code that failed"


def test_a_refusal_is_reported_to_the_caller_up_to_a_length(caplog):
    error = answer_to(page_that(refuses), "prompt is empty")
    assert (error.message, error.title) == ("prompt is empty", "No")
    assert len(answer_to(page_that(refuses), SECRET * 1000).message) < MOST_CHARACTERS + 5
    assert caplog.text == ""
