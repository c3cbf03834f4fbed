"""The Run tab: prompt and controls, the run's tokens and steps, its numbers, the inspector, the
charts."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr
from gradio.blocks import Block

from naive_speculate.events.trace import Trace
from naive_speculate.serving import Request
from ui.assets import component, render
from ui.charts.figures import build_board
from ui.charts.waterfall import build_waterfall
from ui.checks import field_of, in_labels
from ui.explain.inspector import build_panel
from ui.host.catalog import DECODING, Catalog
from ui.host.process import payload
from ui.notify import QUIET, warn
from ui.run import controls as parts
from ui.run.engines import RULES
from ui.run.pairs import choices
from ui.run.recorded import TOO_LARGE
from ui.run.runs import Runs, ShownRun, request_of
from ui.run.samples import ROWS, Samples, build_samples
from ui.run.settings import MAX_PROMPT_CHARACTERS, NOTHING, Settings, from_query, settings_of, title
from ui.run.stage import acceptance, batch, build_stage, seeded
from ui.run.strategies import build_strategies

NO_RUN = "The server no longer has this run. Press Run for a new one."
NO_ROOM = "The server has no room for this trace. Try again later."
LOST_LINK = '{"lost": true}'  # the stage's message for a link that leads nowhere
SETTINGS = '<button type="button" class="ns-settings-open" aria-expanded="false">Settings</button>'
EXAMPLE = "() => {{ const text = {}; return window.translated?.(text) ?? text; }}"
COPY_LINK = """(query) => {
    const link = location.origin + location.pathname + (query ? "?" + query : "");
    history.replaceState(null, "", link);
    if (navigator.clipboard) navigator.clipboard.writeText(link).catch(() => {});
}"""


class Workbench:
    """Builds the tab inside the current Blocks context, and handles its events. `controls` are
    the settings' components by field, `settings` the same in the order of `Settings`;
    `follow_pairs` fills `parts`."""

    def __init__(self, catalog: Catalog, runs: Runs, first: ShownRun) -> None:
        self._catalog, self._runs = catalog, runs
        self._start = first.settings or NOTHING
        first.again = partial(self._samples, "", self._start.request())
        with gr.Column(elem_classes="ns-bench"):
            with gr.Column(elem_classes="ns-side"):
                self._build_side()
            with gr.Column(elem_classes="ns-show"):
                machine = render("machine")
                gr.HTML(html_template=machine, apply_default_css=False, elem_id="machine")
                component("race", render("race"))
                build_samples(runs)
                with gr.Row(elem_classes="ns-view"):
                    with gr.Column(elem_classes="ns-main"):
                        self.stage = build_stage(runs, first)
                    aside = gr.Column(elem_classes="ns-aside")
                    with aside, gr.Column(elem_id="inspector", elem_classes="ns-inspector"):
                        build_panel()
                build_board(RULES)
                self.others = build_strategies(runs)
                build_waterfall()
                models = gr.HTML(html_template="${value}", apply_default_css=False, elem_id="about")
        self.parts |= {"models": models} | {
            name: self.controls[name] for name in ("pair", "drafter", "chat")
        }
        self.settings = parts.ordered(self.controls)
        self._connect_events()

    def _build_side(self) -> None:
        """Prompt, examples, buttons and settings."""
        look: dict[str, Any] = {
            "lines": 1,
            "max_lines": 8,
            "placeholder": "Ask a question, or start a story…",
        }
        self._prompt = gr.Textbox(self._start.prompt, label="Prompt", elem_id="prompt", **look)
        with gr.Row(elem_classes="ns-go"):
            self.run = gr.Button("Run", variant="primary", elem_id="run")
            self.stop = gr.Button("Stop", elem_id="stop")
        questions, asking = parts.build_examples({text: text for text in parts.QUESTIONS})
        stories, beginning = parts.build_examples(parts.EXAMPLES)
        self._examples = asking | beginning
        self.parts: dict[str, Block] = {"questions": questions, "stories": stories}
        self.parts["line"] = gr.HTML(apply_default_css=False)
        # Gradio shows the length of its queue here.
        self._waiting = gr.HTML(elem_id="queue", apply_default_css=False, min_height=0)
        component("page", value=SETTINGS, mount="mountSettings", elem_id="settings")
        with gr.Column(elem_classes="ns-settings"):
            pairs, drafters = choices(self._catalog), self._catalog.of("").drafters
            made, self.share = parts.build_settings(self._start, pairs, drafters)
        self.controls: parts.Controls = {"prompt": self._prompt} | made

    def _connect_events(self) -> None:
        direct = {**QUIET, "queue": False}
        decoding: dict[str, Any] = {
            "concurrency_id": DECODING,
            "concurrency_limit": self._catalog.concurrency,
            "show_progress": "minimal",
            "show_progress_on": self._waiting,
            "api_visibility": "private",
            "postprocess": False,  # plain text needs none, and it would go through another thread
        }
        link = gr.Textbox(visible=False)  # a gr.State would stay on the server
        taken: list[Any] = [
            button.click(
                None, None, self._prompt, js=EXAMPLE.format(json.dumps(text)), **QUIET
            ).then
            for button, text in self._examples.items()
        ]
        for trigger in (self.run.click, self._prompt.submit, *taken):
            trigger(self._halt, None, None, trigger_mode="multiple", **direct).then(
                self._decode, self.settings, self.stage, trigger_mode="multiple", **decoding
            )
        self.stop.click(self._halt, None, None, trigger_mode="multiple", **direct)
        self.stage.open(self._open, None, [self.stage, *self.settings], **QUIET)
        self.stage.linked(self.follow_link, None, self.settings, **QUIET)
        self.stage.follow(self._follow, None, self.stage, trigger_mode="multiple", **decoding)
        for view in (self.stage, self.others):
            view.lost(lambda: gr.Warning(NO_RUN), None, None, **QUIET)
        self.share.click(self._link, self.settings, link, **QUIET).success(
            None, link, None, js=COPY_LINK, **QUIET
        )

    def _samples(self, pair: str, request: Request) -> Callable[[], dict[str, Any]]:
        """What draws the start of a run's text again (see `ShownRun.again`)."""
        rows = min(ROWS, self._catalog.of(pair).engine.about.capacity)
        return Samples(partial(self._catalog.events, pair), request, rows).more

    async def _decode(self, request: gr.Request, *values: Any) -> AsyncIterator[Any]:
        """Run was pressed: decode with the controls' settings."""
        async for message in self._stream(request, lambda: parts.read(values), gr.skip()):
            yield message

    async def _follow(self, event: gr.EventData, request: gr.Request) -> AsyncIterator[Any]:
        """A link was followed: show its run if the server has it, else repeat it."""
        kept = self._runs.get(payload(event).get("run"))
        if kept is not None and kept.done.is_set():
            run = kept.copy()
            self._runs.add(request.session_hash or "", run)
            yield batch(run, most=0)
            return

        def read() -> Settings:
            settings = from_query(linked(event))
            if "prompt" not in settings:
                raise ValueError(
                    "the server no longer has the link's run, and the link lacks the settings to"
                    " repeat it"
                )
            return replace(self._start, **settings)

        async for message in self._stream(request, read, LOST_LINK):
            yield message

    def _warn(self, problem: object) -> None:
        """Show a problem with the settings, under their labels, and mark the field."""
        labels = {name: str(control.label) for name, control in self.controls.items()}
        field = field_of(problem, {*labels, "guided_decoding"})
        labels |= {"guided_decoding": "Guide:", "filter_words": "the page's word filter"}
        said = in_labels(
            problem, {name: label for name, label in labels.items() if name != "prompt"}
        )
        warn(said, field={"guided_decoding": "guided_text"}.get(field, field))

    async def _stream(
        self, request: gr.Request, read: Callable[[], Settings], refused: Any
    ) -> AsyncIterator[Any]:
        """Decode, and yield messages with the new events about 20 times per second, or `refused`
        if it could not start."""
        try:
            settings = read()
            self._catalog.check_limits(settings.window, settings.max_tokens)
            chosen = await request_of(settings)
            begin = partial(self._catalog.start, settings.pair, chosen)
            queue = self._catalog.queue(settings.pair)
        except ValueError as error:
            self._warn(error)
            yield refused
            return
        run = ShownRun()
        run.measure = lambda: self._catalog.measure(
            settings.pair, seeded(chosen, run.events[0].seed), run.plain
        )
        if chosen.params.guided_decoding is not None:
            without = partial(seeded, chosen, guided_decoding=None)
            run.unguided = cache(
                lambda: acceptance(self._catalog.events(settings.pair, without(run.events[0].seed)))
            )
        run.again = partial(self._samples, settings.pair, chosen)
        run.settings = settings
        self._runs.add(request.session_hash or "", run)
        run.start(partial(begin, reader=run.reader()))
        if queue:
            gr.Info(queue)
        # If the connection breaks, this ends but the run continues: the page may request the rest
        # (see `ShownRun`).
        async for first, events in run.batches():
            if first == 0 and events:
                run.title = title(Trace(events))
            if run.done.is_set() and run.error is not None:
                self._warn(run.error)
            if run.events:
                yield batch(run, first, len(events))
        if not run.events:
            self._runs.drop(run)
            yield refused

    def _halt(self, request: gr.Request) -> None:
        self._runs.cancel(request.session_hash or "")

    def _open(self, event: gr.EventData, request: gr.Request) -> Any:
        """Replay an uploaded trace file (see `ui.run.recorded.traces`), and set the controls to
        its settings.

        The event contains the server's answer: the `run`, or the `problem`; neither if the file
        was too large to send.
        """
        asked = payload(event)
        run = self._runs.adopt(request.session_hash or "", asked.get("run"))
        if run is None:
            warn(asked.get("problem") or (NO_ROOM if asked.get("run") else TOO_LARGE))
            return [gr.skip()] * (1 + len(self.settings))
        settings = settings_of(run.trace)
        return [
            batch(run, most=0),
            *(getattr(settings, field.name, gr.skip()) for field in fields(Settings)),
        ]

    def _link(self, *values: Any) -> Any:
        try:
            query = parts.read(values).query(replace(self._start, prompt=""))
        except ValueError as error:
            self._warn(error)
            return gr.skip()
        gr.Info("The link is in the address bar, and copied if the browser allows it.")
        return query

    def follow_link(self, event: gr.EventData) -> list[Any]:
        """The controls' values from the page's link."""
        try:
            settings = from_query(linked(event))
        except ValueError as error:
            self._warn(error)
            settings = {}
        return [settings.get(field.name, gr.skip()) for field in fields(Settings)]


def linked(event: gr.EventData) -> dict[str, str]:
    """A link's parameters, from an event with its `query`."""
    return dict(
        parse_qsl(
            str(payload(event).get("query", ""))[:MAX_PROMPT_CHARACTERS], keep_blank_values=True
        )
    )
