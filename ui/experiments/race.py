"""The race: one prompt and seed, decoded plainly and speculatively, then replayed side by side at the recorded speeds.

Both runs are real and made one after the other, since side by side they would share the processor. The browser replays
them from the times of their events; the server only sends what was recorded.
"""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from naive_speculate.events import OUTPUT_KINDS, EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.sampling.random_source import fresh_seed
from ui.assets import ROOT, mounting
from ui.explain.verdict import warning
from ui.host.catalog import Catalog
from ui.labels import count, percent, to_json
from ui.notify import warn
from ui.run import controls as parts
from ui.run.settings import Settings
from ui.run.wire import HEAVY

INTRO = (
    "The prompt, seed and settings of the Run tab, decoded twice by the same target model: once plainly, once with drafts. "
    "Both are run in turn, twice, and the better heat of each is replayed at the speed it really had."
)
WARM_UP_TOKENS = 4
REPORT_EVERY = 16
HEATS = 2
LONG_SECONDS = 5.0
"""A run that takes longer has one heat only: a hiccup of the machine counts for little in it."""

_serials = itertools.count(1)


def lane(trace: Trace) -> list[dict[str, Any]]:
    """What the browser needs of a run to replay it: the events of its output, of rejected drafts, and of rounds."""
    shown = OUTPUT_KINDS | {EventKind.STARTED, EventKind.REJECTED, EventKind.STEP}
    return [event.to_dict(without=HEAVY) for event in trace if event.kind in shown]


def verdict(plain: Trace, speculative: Trace) -> list[str]:
    """Who won, by how much, and whether the texts had to be, and are, the same: one sentence each, in plain text."""
    a, b = plain.metrics, speculative.metrics
    if not a.tokens_per_second or not b.tokens_per_second:
        return ["One of the two runs ended before its first token, so there is no verdict."]
    times = b.tokens_per_second / a.tokens_per_second
    if times >= 1.02:
        first = f"With drafts it was {times:.2f} times as fast: "
    elif times <= 0.98:
        first = f"Here drafting did not pay: with drafts it had {times:.2f} times the speed of plain decoding, "
    else:
        first = "A draw: "
    first += f"{b.tokens_per_second:.0f} tokens a second against {a.tokens_per_second:.0f}."
    return [
        first,
        f"Plain decoding took {_passes(a.num_spec_steps)} of the target for {count(a.num_generated_tokens, 'token')}, "
        f"speculative decoding {_passes(b.num_spec_steps)} for {count(b.num_generated_tokens, 'token')}"
        + (f", keeping {percent(b.draft_acceptance_rate)} of its drafts." if b.draft_acceptance_rate is not None else "."),
        _same_text(plain, speculative),
        *([warned] if (warned := warning((speculative.started and speculative.started.settings) or {})) else []),
    ]


def _passes(amount: int) -> str:
    return "1 pass" if amount == 1 else f"{amount:,} passes"


def _same_text(plain: Trace, speculative: Trace) -> str:
    started = speculative.started
    settings = (started.settings if started else None) or {}
    if settings.get("temperature") != 0 and settings.get("verify_strategy") != "greedy_match":
        if settings.get("lossy"):
            return "The texts need not agree: this verification is not lossless, and changes what the target would write."
        return (
            "The texts differ, as two throws of the same dice do: each is a fair sample of the same distribution. "
            "Set the temperature to 0 to see the very same text."
        )
    # A stop string may be found at different places of a round, so what both have is compared.
    pairs = list(zip(plain.token_ids, speculative.token_ids, strict=False))
    differ = next((place for place, (x, y) in enumerate(pairs) if x != y), None)
    if differ is not None:
        return (
            f"The texts part at token {differ + 1}. With exact arithmetic they would not: "
            "two tokens must have been all but equally probable there, and rounding chose."
        )
    if len(plain.token_ids) != len(speculative.token_ids):
        return f"The texts agree in all of the {count(len(pairs), 'token')} that both have."
    return f"The texts are the same, token for token: all {len(pairs)} of them. That is what lossless means."


def message(serial: int, plain: Trace, speculative: Trace) -> str:
    """Both runs and the verdict for the browser."""
    lanes = {"plain": lane(plain), "speculative": lane(speculative)}
    return to_json({"serial": serial, **lanes, "verdict": verdict(plain, speculative)})


def build_race(catalog: Catalog, controls: parts.Controls) -> None:
    """Build the tab inside the current Blocks context.

    Args:
        catalog: The models.
        controls: The components that hold the settings, by field.
    """
    with gr.Column(elem_classes="ns-experiment"):
        gr.HTML(f'<p class="ns-intro">{INTRO}</p>', apply_default_css=False)
        with gr.Row(elem_classes="ns-go"):
            run = gr.Button("Race", variant="primary", elem_id="race-run")
            stop = gr.Button("Stop", elem_id="race-stop")
        status = gr.HTML(elem_id="race-status", apply_default_css=False, html_template='<p role="status">${value}</p>')
        view = gr.HTML(
            "",
            html_template=(ROOT / "race.html").read_text(encoding="utf-8"),
            js_on_load=mounting("race"),
            apply_default_css=False,
            elem_id="race-view",
            label="Race",
        )

    def start(*values: Any) -> Iterator[tuple[Any, Any]]:
        try:
            settings = parts.read(values)
            yield from race(catalog, settings)
        except ValueError as error:
            warn(error)
            yield "", gr.skip()

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    going = run.click(start, parts.ordered(controls), [status, view], concurrency_limit=1, **quiet)
    parts.build_stop(stop, going, status, "Stopped.")


def race(catalog: Catalog, settings: Settings) -> Iterator[tuple[Any, Any]]:
    seed = fresh_seed() % 2**31 if settings.seed is None else settings.seed
    drafting = replace(settings, seed=seed)
    if not settings.auto and settings.num_draft_tokens == 0:
        raise ValueError("k is 0, so that both would be plain decoding: set Draft tokens to 1 or more to race")
    plainly = replace(drafting, num_draft_tokens=0, auto=False)
    cancel = threading.Event()
    best: dict[str, Trace] = {}
    try:
        for name, chosen in (("plainly", plainly), ("with drafts", drafting)) * HEATS:
            if name in best and best[name].events[-1].time > LONG_SECONDS:
                continue
            # Both start warm, so that neither pays for what the other finds ready.
            for _ in catalog.stream(chosen.pair, replace(chosen, max_tokens=WARM_UP_TOKENS).request("none"), cancel):
                pass
            trace = Trace()
            for event in catalog.stream(chosen.pair, chosen.request("none"), cancel):
                trace.append(event)
                if event.kind == EventKind.STEP and (event.step or 0) % REPORT_EVERY == 0:
                    yield f"Running {name}: {count(len(trace.token_ids), 'token')} so far …", gr.skip()
            # The same seed gives the same tokens, so that heats differ in nothing but time.
            if name not in best or trace.events[-1].time < best[name].events[-1].time:
                best[name] = trace
    finally:
        cancel.set()
    yield "", message(next(_serials), best["plainly"], best["with drafts"])
