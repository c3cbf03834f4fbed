"""What is on the screen before the page is, and how the page's HTML travels."""

import re
from html import unescape
from pathlib import Path

import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from naive_speculate.events import OUTPUT_KINDS, EventKind
from ui.assets import ROOT, folder, scripts
from ui.host.catalog import Catalog, ServedPair
from ui.host.limits import server_options
from ui.page import ELSEWHERE, FIRST_NEEDED, first_view
from ui.run.recorded import recorded_run
from ui.run.runs import Runs
from ui.run.workbench import Workbench

PAGE = "<html><body><gradio-app></gradio-app>" + "words " * 1000 + "</body></html>"


def tokens_in(markup: str) -> list[tuple[str, str]]:
    """Kind and text of each token."""
    found = re.findall(r'<(?:del|span) class="ns-token" data-kind="(\w+)"[^>]*>([^<]*)</', markup)
    return [(kind, unescape(text)) for kind, text in found]


@pytest.fixture
def client() -> TestClient:
    routes = [
        Route("/", lambda _: HTMLResponse(PAGE)),
        Route("/plain", lambda _: PlainTextResponse(PAGE)),
        scripts(),
    ]
    options = server_options(routes, before="<p>early</p>")
    return TestClient(Starlette(routes=options["routes"], middleware=options["middleware"]))


def test_it_shows_the_recorded_run_s_tokens_as_they_fared_and_text_of_a_model_is_no_markup():
    run = recorded_run()
    found = tokens_in(first_view(run.events))
    assert "".join(text for kind, text in found if kind == "prompt") == run.events[0].prompt
    assert "".join(text for kind, text in found if kind in OUTPUT_KINDS) == run.trace.text
    for kind in (EventKind.REJECTED, EventKind.DISCARDED, EventKind.RESAMPLED):
        assert sum(name == kind for name, _ in found) == sum(
            event.kind == kind for event in run.events
        )
    assert not any(name == EventKind.PROPOSED for name, _ in found), "every draft had its verdict"
    bad = next(event for event in run.events if event.kind == EventKind.BONUS)
    bad.text = "<img src=x onerror=hit()>"
    markup = first_view(run.events)
    assert "<img" not in markup
    assert ("bonus", bad.text) in tokens_in(markup)


def test_it_names_scripts_that_there_are():
    links = re.findall(
        r'modulepreload" fetchpriority="low" href="\.([^"]+)"',
        first_view(recorded_run().events),
    )
    names = {link.removeprefix(f"{folder()}/") for link in links}
    assert (
        {"stage.js", "tokens.js", "plot.js"}
        <= names
        <= {file.name for file in (ROOT / "js").iterdir()}
    )


def test_the_page_s_html_has_it_and_travels_compressed_and_nothing_but_the_page_is_changed(client):
    answer = client.get("/", headers={"Accept-Encoding": "gzip"})
    assert "<p>early</p><gradio-app>" in answer.text
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < len(PAGE) / 4
    plain = client.get("/", headers={"Accept-Encoding": "identity"})
    assert (plain.text, int(plain.headers["content-length"])) == (answer.text, len(plain.content))
    assert client.get("/plain").text == PAGE
    script = client.get(f"{folder()}/stage.js")
    assert script.content == (ROOT / "js" / "stage.js").read_bytes()
    assert "immutable" in script.headers["cache-control"]
    assert script.headers["content-type"].startswith("text/javascript")
    assert client.get(f"{folder()}/plotly-cartesian.min.js").status_code == 200


def test_whatever_the_first_tab_mounts_is_fetched_meanwhile(bundled_engine):
    with gr.Blocks() as page:
        Workbench(Catalog({"bundled": ServedPair(bundled_engine)}), Runs(), recorded_run())
    scripts = "".join(getattr(block, "js_on_load", None) or "" for block in page.blocks.values())
    mounted = set(re.findall(r"return import\(new URL\(\".*?/([\w-]+)\.js\"", scripts))
    assert {"stage", "race", "strategies"} <= mounted <= set(FIRST_NEEDED)


def test_a_link_to_something_else_than_the_front_door_is_the_same_everywhere():
    assert f'data-elsewhere="{" ".join(ELSEWHERE)}"' in first_view([])
    (said,) = re.findall(
        r"A link with (.*) leads there", Path("docs/links.md").read_text(encoding="utf-8")
    )
    assert tuple(re.findall(r"`(\w+)`", said)) == ELSEWHERE
    assert "room" in ELSEWHERE
