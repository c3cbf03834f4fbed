"""A run as self-contained HTML for notebooks and other pages, and one step of it as an SVG
drawing for a slide."""

import html
from collections.abc import Iterable
from itertools import groupby
from textwrap import wrap

from naive_speculate.events.event import OUTPUT_KINDS, TOKEN_KINDS, Event, EventKind
from naive_speculate.events.metrics import Metrics, summarize
from naive_speculate.palette import DRAFT, LIGHT, PROMPT, STYLES, TARGET, Style
from naive_speculate.text import visible

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

_LEFT, _RIGHT, _LEAST_COLUMN, _LONGEST = 96, 20, 112, 20
_TOP, _BAR, _BAR_WIDTH = 64, 90, 26
_FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
_NAMED = {
    "verify_strategy": "",
    "num_draft_tokens": "k = ",
    "temperature": "temperature ",
    "top_p": "top-p ",
    "drafter": "drafter ",
}
_USUAL = {"top_p": 1.0, "drafter": "model"}  # defaults, not shown
_DASHES = {"dotted": "1.5 2.5", "dashed": "5 3"}
_NEXT = (EventKind.RESAMPLED, EventKind.BONUS)


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


def step_svg(events: Iterable[Event], step: int, row: int = 0) -> str:
    """The drawing of a step, on white, with its parameters in the caption; all text is escaped.
    Raises `ValueError` if the events have no token of this step."""
    own = [event for event in events if event.row == row]
    tokens = [
        event
        for event in own
        if event.step == step and event.kind in TOKEN_KINDS and event.token_id is not None
    ]
    if not tokens:
        raise ValueError(
            f"step must be the number of a step with tokens, got {step!r:.80} for row {row!r:.80}"
        )
    started = next((event for event in own if event.kind == EventKind.STARTED), None)
    drafts = [event for event in tokens if event.kind == EventKind.PROPOSED]
    judged = {
        event.index: event for event in tokens if event.kind not in (EventKind.PROPOSED, *_NEXT)
    }
    new = next((event for event in tokens if event.kind in _NEXT), None)
    columns: list[tuple[Event | None, Event | None]] = [
        (draft, judged.get(draft.index)) for draft in drafts
    ]
    if new is not None and new.kind == EventKind.BONUS:
        columns.append((None, new))
    column = max(_LEAST_COLUMN, 24 + 9 * max(len(_text(event)) for event in tokens))
    width = _LEFT + column * max(len(columns), 3) + _RIGHT
    caption = wrap(_caption(own, started, step), int((width - 2 * _RIGHT) / 7.2))
    base, verdicts, output = _TOP + 66 + _BAR, _TOP + 92 + _BAR, _TOP + 168 + _BAR
    height = output + 84 + 18 * len(caption)
    body = [
        _words(
            _RIGHT,
            34,
            _before(own, started, step, int((width - 2 * _RIGHT) / 9)),
            size=17,
            color=LIGHT.muted,
        )
    ]
    if drafts:
        rows = [("drafted", _TOP + 22), ("verdict", verdicts + 34)]
        body += [_words(_RIGHT, y, name, size=14, color=LIGHT.muted) for name, y in rows]
        for number, (name, color) in enumerate(
            (("q, draft", DRAFT.light), ("p, target", TARGET.light))
        ):
            y = base - _BAR + 30 + 24 * number
            body.append(
                f'<rect x="{_RIGHT}" y="{y - 11:g}" width="12" height="12" rx="2" fill="{color}"/>'
            )
            body.append(_words(_RIGHT + 17, y, name, size=13, color=LIGHT.muted))
    body.append(_words(_RIGHT, output + 22, "output", size=14, color=LIGHT.muted))
    for number, (draft, verdict) in enumerate(columns):
        middle = _LEFT + column * (number + 0.5)
        if draft is not None:
            body += _box(middle, _TOP, column - 12, draft, EventKind.PROPOSED)
        body += _bars(middle, base, draft, verdict) if drafts else []
        if draft is not None and verdict is not None:
            body += _verdict(middle, verdicts, verdict)
        shown = new if verdict is not None and verdict.kind == EventKind.REJECTED else verdict
        if shown is not None and shown.kind in OUTPUT_KINDS:
            style = STYLES[shown.kind]
            body += _box(middle, output, column - 12, shown, shown.kind)
            label = f"{style.mark} {style.label}"
            body.append(
                _words(middle, output + 54, label, size=13, color=style.light, anchor="middle")
            )
    body += [
        _words(_RIGHT, output + 92 + 18 * line, text, size=13, color=LIGHT.muted)
        for line, text in enumerate(caption)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" font-family="{_FONT}" role="img"><title>Step {step + 1}</title><rect'
        f' width="{width}" height="{height}" fill="{LIGHT.page}"/>{"".join(body)}</svg>\n'
    )


def _text(event: Event) -> str:
    return visible(event.text or event.token, _LONGEST)


def _before(own: list[Event], started: Event | None, step: int, room: int) -> str:
    """The end of the text before the step, as long as fits."""
    whole = "".join(started.prompt_texts or []) if started else ""
    prompt = started.prompt if started and started.prompt else whole
    if prompt in whole and not whole.endswith(
        prompt
    ):  # after a chat template the answer starts on a new line
        prompt += "\n"
    text = prompt + "".join(
        e.text or "" for e in own if e.kind in OUTPUT_KINDS and e.step is not None and e.step < step
    )
    return visible(text if len(text) < room else "…" + text[len(text) - room + 1 :], room)


def _caption(own: list[Event], started: Event | None, step: int) -> str:
    settings, models = (started.settings or {}, started.models or {}) if started else ({}, {})
    steps = sum(event.kind == EventKind.STEP for event in own)
    parts = [f"Step {step + 1} of {max(steps, step + 1)}"]
    shown = {
        name: words
        for name, words in _NAMED.items()
        if settings.get(name) not in (None, _USUAL.get(name))
    }
    parts += [f"{words}{settings[name]}".replace("_", " ") for name, words in shown.items()]
    if started is not None and started.seed is not None:
        parts.append(f"seed {started.seed}")
    parts += [f"{role}: {name}" for role, name in models.items()]
    return visible(" · ".join(parts), 400)


def _words(
    x: float,
    y: float,
    text: str,
    *,
    size: int,
    color: str = LIGHT.ink,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    look = f'font-size="{size}" fill="{color}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:g}" y="{y:g}" {look} xml:space="preserve">{html.escape(text)}</text>'


def _box(middle: float, top: float, width: float, event: Event, kind: str) -> list[str]:
    """A token in its kind's colour and line style."""
    style, text = STYLES[kind], _text(event)
    line = next((dashes for name, dashes in _DASHES.items() if name in style.line), "")
    drawn = f' stroke-dasharray="{line}"' if line else ""
    return [
        (
            f'<rect x="{middle - width / 2:g}" y="{top:g}" width="{width:g}" height="34" rx="7"'
            f' fill="{style.light}" fill-opacity="0.12" stroke="{style.light}"'
            f' stroke-width="1.5"{drawn}/>'
        ),
        _words(middle, top + 23, text, size=17, color=style.light, anchor="middle", weight=600),
    ]


def _bars(middle: float, base: float, draft: Event | None, verdict: Event | None) -> list[str]:
    """q and p of a token; without p for an unjudged draft token, whose context was rejected."""
    judged = verdict is not None and (
        verdict.kind != EventKind.DISCARDED or verdict.accept_prob is not None
    )
    p = verdict.target_prob if judged and verdict is not None else None
    q = draft.draft_prob if draft is not None else None
    drawn = []
    for value, color, left in ((q, DRAFT.light, -_BAR_WIDTH - 10), (p, TARGET.light, 10)):
        if value is None:
            continue
        height = max(1.0, _BAR * min(1.0, max(0.0, value)))
        x = middle + left
        drawn.append(
            f'<rect x="{x:g}" y="{base - height:g}" width="{_BAR_WIDTH}" height="{height:g}"'
            f' fill="{color}"/>'
        )
        drawn.append(
            _words(x + _BAR_WIDTH / 2, base - height - 5, _number(value), size=12, anchor="middle")
        )
    rule = (
        f'<line x1="{middle - 42:g}" x2="{middle + 42:g}" y1="{base:g}" y2="{base:g}"'
        f' stroke="{LIGHT.rule}"/>'
    )
    return [*drawn, rule] if drawn else []


def _verdict(middle: float, top: float, verdict: Event) -> list[str]:
    style, reasons = STYLES[verdict.kind], _reasons(verdict)
    lines = [
        _words(middle, top + 16 + 18 * line, text, size=13, anchor="middle")
        for line, text in enumerate(reasons)
    ]
    last, fate = top + 16 + 18 * len(reasons), f"{style.mark} {style.label}"
    return [
        *lines,
        _words(middle, last, fate, size=13, anchor="middle", color=style.light, weight=600),
    ]


def _reasons(verdict: Event) -> list[str]:
    """The numbers of the verdict."""
    accept, u = verdict.accept_prob, verdict.uniform
    if accept is None:
        return []
    if verdict.threshold is not None:
        return [_equals("threshold", verdict.threshold)]
    if u is None:
        return ["target's likeliest" if accept >= 1 else "not the likeliest"]
    q, p = verdict.draft_prob, verdict.target_prob
    ratio = p / q if p is not None and q else None
    name = "p/q" if ratio is not None and abs(min(1.0, ratio) - accept) < 1e-3 else "h"
    bar = "p ≥ q" if name == "p/q" and accept >= 1 else _equals(name, accept)
    return [bar, _equals("u", u)]


def _number(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0005 or value == 0 else "<0.001"


def _equals(name: str, value: float) -> str:
    shown = _number(value)
    return f"{name} < {shown[1:]}" if shown.startswith("<") else f"{name} = {shown}"
