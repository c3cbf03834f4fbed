"""Guided decoding: its control, the run, what it did to acceptance, and its way through links and files."""

import json
import re

from playwright.sync_api import expect

from naive_speculate import Trace
from naive_speculate.events.event import OUTPUT_KINDS
from tests.browser.steps import TIP, ended, open_drawer, open_file, open_trace, run, set_number, shown_run, text, toast, trace
from ui.run.controls import GUIDES
from ui.run.settings import TITLES

PROMPT = "Once upon a time there was a little fox who lived"
EFFECT = ".ns-guided"
TEXT = "#guided-text textarea"


def called(request) -> str:
    """The server's function that a request calls, or nothing."""
    return request.post_data_json["fn_name"] if "component_server" in request.url else ""


def guide_by(page, kind: str) -> None:
    page.locator("#guided input").click()
    page.get_by_role("option", name=TITLES.get(kind, "Nothing")).click()


def test_a_guide_is_chosen_by_example_its_schema_is_filled_in_and_a_bad_one_loses_nothing(page):
    expect(page.locator("#guided")).to_be_hidden()
    open_drawer(page)
    expect(page.locator("#guided")).to_be_visible()
    expect(page.locator("#guided-text")).to_be_hidden()
    for kind in GUIDES:
        guide_by(page, kind)
        expect(page.locator(TEXT)).to_have_value(GUIDES[kind])
    guide_by(page, "json")
    run(page, PROMPT, max_tokens=60)
    assert set(json.loads(text(page))) == {"animal", "name", "age"}
    expect(page.locator(EFFECT)).to_contain_text(re.compile(r"\d+ of \d+ tokens were forced: the guide allowed no other"))
    forced = [event for event in trace(page) if event.kind in OUTPUT_KINDS and event.forced]
    page.locator("#tokens [data-step]:not([hidden])").nth(forced[0].position).hover()
    expect(page.locator(TIP)).to_contain_text("forcedthe guide")
    before, shown = shown_run(page), text(page)
    guide_by(page, "regex")
    page.locator(TEXT).fill("([a-z")
    page.locator("#run").click()
    toast(page, "regex does not parse, got '\\(\\[a-z': .*Unclosed")
    assert (shown_run(page), text(page)) == (before, shown)
    expect(page.locator(TEXT)).to_have_value("([a-z")
    guide_by(page, "json")
    expect(page.locator(TEXT)).to_have_value("([a-z")  # what the visitor wrote is not written over
    page.locator("#run").click()
    toast(page, "json does not parse")
    guide_by(page, "")
    expect(page.locator("#guided-text")).to_be_hidden()
    run(page, PROMPT, max_tokens=8)
    expect(page.locator(EFFECT)).to_be_hidden()


def test_a_guided_run_states_its_acceptance_and_keeps_its_guide_in_links_and_files(open_page, measuring, tmp_path):
    page = open_page(url=measuring.url)
    ended(page)
    open_drawer(page)
    guide_by(page, "regex")
    expect(page.locator(TEXT)).to_have_value(GUIDES["regex"])
    calls: list[str] = []
    page.on("request", lambda request: calls.append(f"asked {called(request)}"))
    page.on("response", lambda response: calls.append(f"told {called(response.request)}"))
    run(page, PROMPT, max_tokens=60)
    assert re.fullmatch(GUIDES["regex"], text(page))
    expect(page.locator(EFFECT)).to_contain_text(
        re.compile(r"were accepted \(\d+ of \d+\); without the guide \d+% \(\d+ of \d+\)")
    )
    assert calls.index("told speedup") < calls.index("asked unguided"), "each needs quiet"
    assert trace(page).started.settings["guided_decoding"] == {"regex": GUIDES["regex"]}
    trace(page).save(tmp_path / "guided.jsonl")
    with page.expect_download() as download:
        page.get_by_text("Save as…").click()
        page.get_by_role("button", name="A page that replays by itself").click()
    download.value.save_as(tmp_path / "guided.html")
    page.locator("#share").click()
    page.wait_for_url("**guided=regex**")
    link = page.url
    set_number(page, "max-tokens", 61)

    page.goto("about:blank")
    page.goto(link)
    ended(page)
    open_drawer(page)
    expect(page.locator("#guided input")).to_have_value(TITLES["regex"])
    expect(page.locator(TEXT)).to_have_value(GUIDES["regex"])
    guide_by(page, "")
    open_file(page, tmp_path / "guided.jsonl")
    expect(page.locator("#guided input")).to_have_value(TITLES["regex"])
    expect(page.locator(TEXT)).to_have_value(GUIDES["regex"])
    expect(page.locator(EFFECT)).to_contain_text("were accepted")
    expect(page.locator(EFFECT)).not_to_contain_text("without the guide")  # it was not decoded here
    foreign = Trace.load(tmp_path / "guided.jsonl")
    foreign.started.settings["guided_decoding"] = {"choice": 1, "regex": None, "json": "{}"}
    open_trace(page, foreign, tmp_path / "foreign.jsonl")
    expect(page.locator(EFFECT)).to_contain_text("Guided by a JSON schema.")

    page.goto(f"file://{tmp_path / 'guided.html'}")
    page.get_by_role("button", name="To the end").click()
    expect(page.locator(EFFECT)).to_contain_text(GUIDES["regex"])
