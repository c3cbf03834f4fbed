"""What is on the screen before the page is, and how the page's HTML travels."""

import re
from html import unescape

import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from naive_speculate.events import OUTPUT_KINDS, EventKind
from ui.assets import PREVIEWS, ROOT, folder, scripts
from ui.first_view import FIRST_NEEDED, arrivals, asked
from ui.host.catalog import Catalog, ServedPair
from ui.host.limits import server_options
from ui.run.recorded import recorded_run
from ui.run.runs import Runs, ShownRun
from ui.run.workbench import Workbench

PAGE = "<html><body><gradio-app></gradio-app>" + "words " * 1000 + "</body></html>"


def tokens_in(markup: str) -> list[tuple[str, str]]:
    """Kind and text of each token."""
    found = re.findall(r'<(?:del|span) class="ns-token" data-kind="(\w+)"[^>]*>([^<]*)</', markup)
    return [(kind, unescape(text)) for kind, text in found]


def painted(query: str = "", run: ShownRun | None = None) -> tuple[str, str]:
    """Tags and markup of a page with this query, without the drawings."""
    tags, markup = arrivals(run or recorded_run(), None)("https://host/", QueryParams(query))
    return tags, re.sub("<svg.*?</svg>", "", markup, flags=re.DOTALL)


@pytest.fixture
def client() -> TestClient:
    routes = [
        Route("/", lambda _: HTMLResponse(PAGE)),
        Route("/plain", lambda _: PlainTextResponse(PAGE)),
        scripts(),
    ]
    options = server_options(routes, arrive=lambda *_: ("", "<p>early</p>"))
    return TestClient(Starlette(routes=options["routes"], middleware=options["middleware"]))


def test_it_shows_the_recorded_run_s_tokens_as_they_fared_and_text_of_a_model_is_no_markup():
    run = recorded_run()
    found = tokens_in(painted()[1])
    assert "".join(text for kind, text in found if kind == "prompt") == run.events[0].prompt
    assert "".join(text for kind, text in found if kind in OUTPUT_KINDS) == run.trace.text
    for kind in (EventKind.REJECTED, EventKind.DISCARDED, EventKind.RESAMPLED):
        assert sum(name == kind for name, _ in found) == sum(
            event.kind == kind for event in run.events
        )
    assert not any(name == EventKind.PROPOSED for name, _ in found), "every draft had its verdict"
    bad = next(event for event in run.events if event.kind == EventKind.BONUS)
    bad.text = "<img src=x onerror=hit()>"
    _, markup = painted(run=run)
    assert "<img" not in markup
    assert ("bonus", bad.text) in tokens_in(markup)


def test_it_names_scripts_that_there_are():
    links = re.findall(
        r'modulepreload" fetchpriority="low" href="\.([^"]+)"',
        painted()[1],
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


@pytest.mark.parametrize(
    ("query", "title", "picture", "words"),
    [
        ("lesson=3&step=1", "Lesson 3: When is a draft", "lesson-3", "Lesson 3, step 1 of"),
        ("lesson=99&step=-1", "Lesson 13: ", "lesson-13", "Lesson 13"),
        ("tab=learn", "Lesson 1: ", "lesson-1", "Lesson 1"),
        ("room=doctor", "Doctor", "run", "What does your engine"),
        ("tab=explore", "", "run", "Every cell of these maps is measured"),
        ("run=recorded&round=2", "Step 2 of speculative decoding", "step-2", "ns-tokens"),
        ("run=0123&round=2", "Step 2 of speculative decoding", "step-2", "Loading the controls"),
    ],
)  # fmt: skip
def test_a_link_shows_what_it_leads_to_where_it_is_posted_and_before_the_page_is_there(
    query, title, picture, words
):
    tags, markup = painted(query)
    assert f'og:title" content="{title}' in tags
    assert f"/previews/{picture}.png" in tags or f"{picture}.png" not in PREVIEWS
    assert words in markup
    assert ("ns-token" in markup) == (
        asked(QueryParams(query)).kind == "run" and "0123" not in query
    )
