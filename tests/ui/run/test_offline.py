"""A run as one file: everything in it, nothing from elsewhere, nothing of a model's as markup."""

import json
import re
from base64 import b64decode

import pytest

from naive_speculate import Trace
from naive_speculate.events import TOKEN_KINDS
from tests.ui.handmade import run
from ui.run.messages import offline_page
from ui.run.recorded import recorded_run
from ui.run.runs import Run, Runs
from ui.run.stage import _server_functions, template

EVIL = "</script><script>alert(1)</script><!--"


def page_of(made: Run) -> str:
    return offline_page(made, template())


@pytest.fixture(scope="module")
def recorded() -> Run:
    return recorded_run()


@pytest.fixture(scope="module")
def page(recorded) -> str:
    return page_of(recorded)


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="run">(.*?)</script>', page, re.S)[1])


def test_every_script_that_is_imported_is_in_the_file_and_nothing_is_loaded_from_elsewhere(page):
    imports = json.loads(re.search(r'<script type="importmap">(.*?)</script>', page)[1])["imports"]
    scripts = {name: b64decode(address.split(",")[1]).decode() for name, address in imports.items()}
    assert "ns/stage.js" in scripts
    for name, text in scripts.items():
        assert "./" not in "".join(re.findall(r"^(?:import|export) .*? from .*$", text, re.M)), name
        assert set(re.findall(r'from "(.+?)"', text)) <= scripts.keys(), name
    assert "default-src 'none'" in page
    assert not re.findall(r"<(?:link|img|iframe|script)[^>]*(?:src|href)=|@import|url\(", page)


def test_it_holds_the_run_and_why_each_token_was_kept_or_not(recorded, page):
    data = data_of(page)
    message = json.loads(data["message"])
    assert [event["kind"] for event in message["events"]] == [event.kind.value for event in recorded.events]
    assert message["done"]
    tokens = [str(n) for n, event in enumerate(recorded.events) if event.kind in TOKEN_KINDS]
    assert sorted(data["words"], key=int) == tokens
    assert all(words["sentences"] for words in data["words"].values())
    assert any(words["redraw"] and words["redraw"]["bins"] for words in data["words"].values())


def test_words_of_a_model_do_not_end_the_script_or_open_another():
    trace = run([(3, 1)])
    for event in trace:
        event.text = event.token = event.prompt = EVIL
    page = page_of(Run(trace.events, title=EVIL))
    assert "<script>alert" not in page
    assert EVIL in json.loads(data_of(page)["message"])["events"][0]["prompt"]


def test_the_browser_gets_both_files_of_a_run_that_it_may_see():
    runs, mine = Runs(), Run(run([(3, 1)]).events, title=EVIL)
    runs.add("visitor", mine)
    *_, file = _server_functions(runs)
    assert "importmap" in file([mine.id, "replay"])
    assert Trace(mine.events)._repr_html_() in file([mine.id, "html"])
    assert "<script>" not in file([mine.id, "html"])
    for odd in (None, [], ["no run", "html"], [mine.id], [mine.id, "x"], [None, "replay"]):
        assert file(odd) == ""
