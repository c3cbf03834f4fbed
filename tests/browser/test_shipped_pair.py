"""The page as it comes, with the pair that ships and all that it does unasked; other tests have a smaller pair."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from benchmarks.server import Server
from naive_speculate import SamplingParams
from naive_speculate.speculate.draft import DRAFTERS
from tests.browser.steps import open_drawer, run, text, trace

PROMPT = "Once upon a time there was a fox who"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def test_the_pair_that_ships_writes_the_library_s_text_under_its_filter_and_its_speedup_is_measured(page, bundled_decoder):
    run(page, PROMPT, max_tokens=60, seed=3, k=2)
    for kind in ("accepted", "rejected", "discarded", "resampled", "bonus"):
        page.locator(f"#tokens [data-kind={kind}]").first.wait_for(state="attached")
    params = SamplingParams(temperature=0.7, max_tokens=60, seed=3, filter_words="classroom")
    result = bundled_decoder.generate(PROMPT, params, num_draft_tokens=2)
    assert text(page) == result.text
    expect(page.locator("#stats .ns-tiles > div:nth-child(4) b")).to_have_text(re.compile(r"\d\.\d\d×"))
    saved = trace(page)
    assert [event.token_id for event in saved] == [event.token_id for event in result.trace]
    assert saved[0].settings["filter_words"] == "classroom"


def test_its_head_drafts_where_it_is_chosen_and_shows_which_layers_it_reads(page):
    open_drawer(page)
    page.locator("#drafter").get_by_label(DRAFTERS["head"].title).check()
    run(page, PROMPT, max_tokens=40, temperature=0, seed=3, k=3)
    assert trace(page)[0].settings["drafter"] == "head"
    page.locator("#tokens [data-kind=accepted]").first.wait_for(state="attached")
    expect(page.locator(".ns-drafter")).to_contain_text("after 2, 6 and 11 of its 12 layers")
