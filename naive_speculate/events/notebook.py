"""A run as self-contained HTML for notebooks and other pages."""

import html
from collections.abc import Iterable
from itertools import groupby

from naive_speculate.events.event import OUTPUT_KINDS, Event, EventKind
from naive_speculate.events.metrics import Metrics, summarize
from naive_speculate.palette import LIGHT, PROMPT, STYLES, Style

MAX_TOKENS = 5000  # most tokens shown, since more make notebooks slow; the rest is counted
_SHOWN = (
    EventKind.ACCEPTED,
    EventKind.RESAMPLED,
    EventKind.BONUS,
    EventKind.REJECTED,
    EventKind.DISCARDED,
)
_NO_TEXT = (STYLES[EventKind.REJECTED], STYLES[EventKind.DISCARDED])
_BOX = (
    f"font:16px/1.75 system-ui,sans-serif;color:{LIGHT.ink};background:{LIGHT.page};border:1px"
    f" solid {LIGHT.rule};border-radius:10px;padding:12px 16px;max-width:90ch"
)
_TEXT = "margin:0 0 8px;white-space:pre-wrap;overflow-wrap:anywhere"


def to_html(events: Iterable[Event]) -> str:
    """The text of a run with rejected draft tokens struck through, a legend and the figures, per
    row; all text is escaped."""
    rows = sorted(events, key=lambda event: event.row)
    parts = [_row(list(own)) for _, own in groupby(rows, key=lambda event: event.row)]
    legend = " ".join(
        _span(style, f"{style.mark} {style.label}")
        for style in (PROMPT, *(STYLES[kind] for kind in _SHOWN))
    )
    return (
        f'<div style="{_BOX}">{"".join(parts)}<p style="margin:8px 0'
        f' 0;font-size:14px">{legend}</p></div>'
    )


def _row(events: list[Event]) -> str:
    started = next((event for event in events if event.kind == EventKind.STARTED), None)
    prompt = "".join(started.prompt_texts or []) or (started.prompt or "") if started else ""
    tokens = [event for event in events if event.kind in _SHOWN]
    spans = [_span(PROMPT, prompt), *map(_token, tokens[:MAX_TOKENS])]
    if len(tokens) > MAX_TOKENS:
        spans.append(f" … {len(tokens) - MAX_TOKENS:,} more")
    figures = html.escape(_figures(summarize(events)))
    return (
        f'<p style="{_TEXT}">{"".join(spans)}</p><p'
        f' style="margin:0;font-size:14px;color:{LIGHT.muted}">{figures}</p>'
    )


def _token(event: Event) -> str:
    text = event.text or ""
    if event.kind not in OUTPUT_KINDS:
        text = text.replace("\n", "⏎")  # not part of the text, so it must not break the line
    numbers = (("p", event.target_prob), ("q", event.draft_prob), ("u", event.uniform))
    title = ", ".join(
        [
            STYLES[event.kind].label,
            *(f"{name} = {value:.3g}" for name, value in numbers if value is not None),
        ]
    )
    return _span(
        STYLES[event.kind], text, title, "del" if event.kind == EventKind.REJECTED else "span"
    )


def _span(style: Style, text: str, title: str = "", tag: str = "span") -> str:
    looks = f"color:{style.light}" + (
        f";text-decoration:{style.line};background:{style.light}1f" if style.line else ""
    )
    if style in _NO_TEXT:  # what is selected is copied: the text
        looks += ";-webkit-user-select:none;user-select:none"
    hint = f' title="{html.escape(title, quote=True)}"' if title else ""
    return f'<{tag} style="{looks}"{hint}>{html.escape(text)}</{tag}>'


def _figures(metrics: Metrics) -> str:
    parts = [f"{metrics.num_generated_tokens:,} tokens in {metrics.num_spec_steps:,} target passes"]
    if metrics.alpha is not None:
        judged = metrics.num_accepted_draft_tokens + metrics.num_rejected_draft_tokens
        accepted = metrics.num_accepted_draft_tokens
        parts.append(
            f"{accepted:,} of {judged:,} judged draft tokens accepted (α = {metrics.alpha:.2f})"
        )
    if metrics.tokens_per_second is not None:
        parts.append(f"{metrics.tokens_per_second:,.0f} tokens/s")
    return " · ".join(parts)
