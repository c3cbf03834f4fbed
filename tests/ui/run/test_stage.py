"""The stage's markup, and what the browser can ask the server for."""

import json
import re

from markupsafe import escape
from starlette.applications import Starlette
from starlette.testclient import TestClient

from naive_speculate import Trace
from naive_speculate.events import TOKEN_KINDS
from naive_speculate.palette import STYLES
from tests.ui.handmade import run
from ui.assets import mounting, scripts, styles, variables
from ui.run.messages import batch
from ui.run.recorded import opened
from ui.run.runs import Run, Runs
from ui.run.stage import TILES, _server_functions, template


def test_every_kind_has_a_key_with_its_mark_and_meaning():
    shown = template()
    for kind in TOKEN_KINDS:
        assert f'class="ns-key" data-kind="{kind.value}"><i aria-hidden="true">{STYLES[kind].mark}</i>' in shown
        assert escape(STYLES[kind].meaning) in shown


def test_the_markup_has_a_place_for_every_number_and_is_no_template_of_gradio_s():
    assert all(f">{name}</a></dt>" in template() for name in TILES)
    assert not any(sign in template() for sign in ("`", "${", "{{"))


def test_the_palette_reaches_the_style_sheet_for_both_themes():
    light, dark = variables().split(".dark")
    for kind, style in STYLES.items():
        assert f"--ns-{kind}:{style.light};" in light
        assert f"--ns-{kind}:{style.dark};" in dark
    assert "</style" not in styles()


def test_scripts_are_served_as_modules_at_an_address_of_their_version():
    client = TestClient(Starlette(routes=[scripts()]))
    address = re.search(r'URL\("\.(.+?)"', mounting("stage"))[1]
    answer = client.get(address)
    assert answer.headers["content-type"].startswith("text/javascript")
    for module in re.findall(r'from "\./(.+?)"', answer.text):
        assert client.get(address.replace("stage.js", module)).status_code == 200


def kept(trace: Trace, **fields: str) -> tuple[Runs, Run]:
    """A visitor's run, among the runs."""
    runs, mine = Runs(), Run(trace.events, **fields)
    runs.add("visitor", mine)
    return runs, mine


def test_the_browser_gets_what_it_missed():
    runs, mine = kept(run([(3, 1), (3, 3)]))
    resync, _, trace, *_ = _server_functions(runs)
    answer = json.loads(resync([mine.id, 4]))
    assert (answer["first"], len(answer["events"]), answer["done"]) == (4, len(mine.events) - 4, True)
    assert trace(mine.id) == mine.trace.to_jsonl()


def test_a_token_is_explained_by_what_playback_has_shown_and_no_more():
    runs, mine = kept(run([(3, 1), (3, 3)]))
    _, _, _, explain, *_ = _server_functions(runs)
    kinds = [event.kind for event in mine.events]
    drafted, refused, replaced = kinds.index("proposed") + 1, kinds.index("rejected"), kinds.index("resampled")

    def said(number: int, upto: int) -> str:
        sentences = json.loads(explain([mine.id, number, upto]))["words"]["sentences"]
        return " ".join("".join(text for text, _ in pieces) for pieces in sentences)

    assert "has not judged it yet" in said(drafted, refused)
    assert "has not judged it yet" not in said(drafted, refused + 1)
    assert mine.events[refused].text == mine.events[drafted].text
    assert "replaces the rejected" in said(replaced, replaced + 1)
    assert explain([mine.id, refused, refused]) == ""


def test_odd_questions_get_an_empty_answer():
    every = _server_functions(Runs())
    for odd in (None, [], ["x"], ["no run", 0], ["no run", 1, 2], [None, None], [None, None, None], {"run": 1}, "text"):
        assert [function(odd) for function in (*every[:4], *every[6:])] == [""] * 7
    runs, mine = kept(run([(1, 1)]))
    resync, _, _, explain, *_ = _server_functions(runs)
    for odd in ([mine.id, 0, 3], [mine.id, 2, 2], [mine.id, -1, 3], [mine.id, 1, 10**9], [mine.id, "1", 3], [mine.id, 1.0, 3]):
        assert explain(odd) == ""
    assert resync([mine.id, -5]) == ""
    assert resync([mine.id, "3"]) == ""
    assert json.loads(resync([mine.id, 10**9]))["events"] == []


def test_a_replayed_trace_shows_the_same_as_the_run():
    trace = run([(3, 1), (3, 3)])
    first, second = Run(trace.events), opened("my.jsonl", trace.to_jsonl())
    assert json.loads(batch(first))["events"] == json.loads(batch(second))["events"]
