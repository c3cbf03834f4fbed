"""The page: its tabs, and what happens when it is opened, left, or called by a program."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import gradio as gr
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from ui.assets import component, mounting, scripts, styles
from ui.experiments.doctor import build_doctor
from ui.experiments.explore import build_explore
from ui.experiments.learn import build_learn, lesson_in
from ui.experiments.race import build_race
from ui.experiments.rooms import room_in
from ui.experiments.yourself import build_yourself
from ui.explain.glossary import glossary
from ui.explain.models import documents
from ui.host.calls import Known, server_functions
from ui.host.catalog import Catalog
from ui.host.errors import Page, hush
from ui.host.limits import MAX_TRACE_BYTES, server_options
from ui.host.origin import own_names, trust
from ui.host.queue import BoundedQueue
from ui.notify import QUIET, warn
from ui.run.api import add_api
from ui.run.early import Early, early_view
from ui.run.pairs import build_notice, follow_pairs
from ui.run.recorded import recorded_run
from ui.run.runs import Runs
from ui.run.workbench import Workbench, linked
from ui.theme import theme

TAGLINE = "Speculative decoding, live: a small model guesses ahead, a large one checks. The large one's output, only sooner."

TABS = ("run", "race", "explore", "learn")
"""The tabs' names in links."""

DELETE_CACHE = (600, 3600)
"""Every so many seconds, Gradio deletes its files that are older than so many; nothing here should make any."""

HEADER = (
    f'<header class="ns-top"><h1>Naive Speculate</h1><p>{TAGLINE}</p>'
    '<span class="ns-top-buttons"><button type="button" data-glossary>Glossary</button>'
    '<button type="button" class="ns-lecture-button" aria-pressed="false" title="Large type; arrow keys step, Escape leaves">'
    'Lecture</button><button type="button" class="ns-theme" aria-pressed="false">Dark</button></span></header>'
)


def build_page(catalog: Catalog, runs: Runs) -> gr.Blocks:
    """The whole page."""
    first = recorded_run()
    runs.pin(first)

    def leave(request: gr.Request) -> None:
        if request.session_hash:
            runs.leave(request.session_hash)

    with Page(title="Naive Speculate", fill_width=True, analytics_enabled=False, delete_cache=DELETE_CACHE) as page:
        mounted = mounting("theme") + mounting("tabs") + mounting("views", "linked")
        header = gr.HTML(HEADER, html_template="${value}", js_on_load=mounted, apply_default_css=False)
        component("glossary", value=glossary())
        notice = build_notice(catalog)
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Run", id="run"):
                workbench = Workbench(catalog, runs, first)
            with gr.Tab("Race", id="race"):
                build_race(catalog, workbench.controls)
            with gr.Tab("Explore", id="explore"):
                build_explore(catalog, workbench.controls)
            with gr.Tab("Learn", id="learn"):
                build_learn(catalog, workbench.controls)
                build_yourself(catalog)
                build_doctor()
        # Not on every load: each time anything runs, Gradio copies all components that were ever set, with all in them.
        header.linked(_check_link, None, None, **QUIET)
        page.unload(leave)
        follow_pairs(catalog, page, {"notice": notice, **workbench.parts})
        add_api(catalog)
    return page


def _check_link(event: gr.EventData) -> None:
    """Tells of a lesson, a room or a tab that there is not. `assets/js/tabs.js` opens the tab, `learn.js` goes to the step,
    `room.js` opens the room."""
    query = linked(event)
    for name, found in (("lesson", lesson_in(query)), ("room", room_in(query)), ("tab", query.get("tab") in TABS)):
        if query.get(name) and not found:
            warn(f"there is no {name} {query[name]!r:.80}, to which the link leads")


MOST_CALLS = 512
"""Calls that Gradio works on at once. Those that decode wait in an engine, which shares itself out; with Gradio's own 40, one
visitor's calls would keep all others in Gradio's queue, which takes them as they come."""


def open_queue(page: gr.Blocks, size: int) -> None:
    """Let so many runs wait, and have Gradio look for the next one every 20 ms, and for progress every 50.

    By itself it looks a thousand and a hundred times a second, and each time takes the interpreter from the decoder.
    """
    page.queue(max_size=size, api_open=False)  # nobody passes the queue
    page._queue = BoundedQueue(page, size)
    page._queue.sleep_when_free = 0.02
    page._queue.progress_update_sleep_when_free = 0.05


def launch(page: gr.Blocks, routes: Sequence[BaseRoute] = (), names: Iterable[str] = (), **where: Any) -> str:
    """Serve the page with its looks, scripts and limits, and further routes. Returns the page's address.

    Args:
        page: The page.
        routes: Further addresses.
        names: Names under which visitors know the page, besides this machine's and the Space's.
        **where: For Gradio's `launch`.
    """
    hush()
    trust(own_names(names, where.get("server_name") or os.environ.get("GRADIO_SERVER_NAME")))
    view = early_view(TAGLINE, recorded_run().events)
    _, url, _ = page.launch(
        theme=theme(),
        head=f"<style>{styles()}</style>",
        footer_links=["api"],
        run_history=False,  # it would keep prompts in the browser, and have the server write to the Hub
        ssr_mode=False,
        _frontend=False,  # else Gradio asks for the page itself, and gives up where that takes 3 s
        max_file_size=MAX_TRACE_BYTES,
        max_threads=MOST_CALLS,
        app_kwargs=server_options(
            [scripts(), server_functions(page), *documents(), *routes],
            [Middleware(Known, page=page), Middleware(Early, view=view)],
        ),
        **where,
    )
    return str(url)
