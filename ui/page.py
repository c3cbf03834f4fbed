"""The page: its tabs, its server, and what happens when a visitor opens or leaves it."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import gradio as gr
from starlette.routing import BaseRoute

from ui.assets import component, render, scripts, styles, theme
from ui.experiments.compare_texts import build_compare_texts
from ui.experiments.doctor import build_doctor
from ui.experiments.draft_yourself import build_draft_yourself
from ui.experiments.explore import build_explore
from ui.experiments.learn import build_learn, lesson_in
from ui.experiments.rooms import ROOMS
from ui.explain.glossary import glossary
from ui.first_view import TABS, TITLE, arrivals, previews
from ui.host.catalog import Catalog
from ui.host.errors import Page, silence_library_logs
from ui.host.limits import MAX_TRACE_BYTES, server_functions, server_options
from ui.host.process import answer_tools_in_json, trust
from ui.host.queue import open_queue
from ui.notify import QUIET, warn
from ui.run.api import add_api
from ui.run.pairs import build_notice, documents, follow_pairs
from ui.run.recorded import recorded_run
from ui.run.runs import Runs
from ui.run.workbench import Workbench, linked

MOST_CALLS = 512
"""Calls that Gradio handles at once. Decoding calls wait in an engine, which is fair. With
Gradio's default of 40, one visitor's calls could block all others in Gradio's queue, which is
first come, first served."""


def build_page(catalog: Catalog, runs: Runs) -> Page:
    target = catalog.of("").engine.about.models.get("target")
    first = recorded_run(target)
    runs.pin(first)

    def leave(request: gr.Request) -> None:
        if request.session_hash:
            runs.leave(request.session_hash)

    with Page(title=TITLE, fill_width=True, analytics_enabled=False) as page:
        header = component("page", value=render("header"), events=["linked"], elem_id="header")
        component("glossary", value=glossary())
        notice = build_notice(catalog)
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Run", id="run"):
                workbench = Workbench(catalog, runs, first)
            with gr.Tab("Explore", id="explore"):
                build_explore(catalog, workbench.controls)
            with gr.Tab("Learn", id="learn"):
                build_learn(catalog, workbench.controls)
                build_draft_yourself(catalog)
                build_compare_texts(catalog, workbench.controls)
                build_doctor()
        component("page", render("languages"), mount="mountLanguages", elem_id="language_menu")
        # Not on every load: at each event Gradio copies all components that were ever updated, with
        # their contents.
        header.linked(_check_link, None, None, **QUIET)
        page.unload(leave)
        follow_pairs(catalog, page, {"notice": notice, **workbench.parts})
        add_api(catalog)
    page.arrive = arrivals(first, target)
    return page


def _check_link(event: gr.EventData) -> None:
    """Warn if a link names an unknown lesson, room or tab. Scripts open them: `page.js`,
    `learn.js` and `rooms.js`."""
    query = linked(event)
    exists = {
        "lesson": lesson_in(query),
        "room": query.get("room") in ROOMS,
        "tab": query.get("tab") in TABS,
    }
    for name in exists:
        if query.get(name) and not exists[name]:
            warn(f"the link names {name} {query[name]!r:.80}, which does not exist")


def launch(
    page: Page,
    queue: int,
    routes: Sequence[BaseRoute] = (),
    names: Iterable[str] = (),
    **where: Any,
) -> str:
    """Serve the page from other threads, with its styles, scripts and limits, a queue for so
    many calls, and further routes. `where` are options of Gradio's `launch`, `names` the page's
    host names, in addition to this machine's and the Space's. Returns the page's address."""
    open_queue(page, queue)
    own = [scripts(), previews(), server_functions(page), *documents(), *routes]
    silence_library_logs()
    answer_tools_in_json()
    trust(names, where.get("server_name") or os.environ.get("GRADIO_SERVER_NAME"))
    _, url, _ = page.launch(
        theme=theme(),
        head=f"<style>{styles()}</style>",
        footer_links=["api"],
        # it would store prompts in the browser, and let the server write to the Hub
        run_history=False,
        ssr_mode=False,
        enable_monitoring=False,  # it would write its key to the log whenever anybody asks
        prevent_thread_lock=True,
        show_error=True,  # programs get the message of a failed call
        _frontend=False,  # otherwise Gradio requests the page itself, and gives up after 3 s
        max_file_size=MAX_TRACE_BYTES,
        max_threads=MOST_CALLS,
        app_kwargs=server_options(own, page, page.arrive),
        **where,
    )
    return str(url)
