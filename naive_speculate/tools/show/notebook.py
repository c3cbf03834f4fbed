"""A run as self-contained HTML for notebooks and other pages."""

import html
from collections.abc import Iterable, Iterator
from itertools import groupby

from naive_speculate.events.event import Event
from naive_speculate.events.metrics import Metrics, summarize
from naive_speculate.tools.show.palette import LIGHT
from naive_speculate.tools.show.spans import LEGEND, Span, legend, spans, to_markup

MAX_SPANS = 5000  # most pieces shown, since more make notebooks slow; the rest is counted
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
    keys = " ".join(_shown(legend(["prompt", *LEGEND]), "span"))
    return (
        f'<div style="{_BOX}">{"".join(parts)}<p style="margin:8px 0'
        f' 0;font-size:14px">{keys}</p></div>'
    )


def _row(events: list[Event]) -> str:
    own = list(spans(events))
    shown = [*_shown(own[:MAX_SPANS])]
    if len(own) > MAX_SPANS:
        shown.append(f" … {len(own) - MAX_SPANS:,} more")
    figures = html.escape(_figures(summarize(events)))
    return (
        f'<p style="{_TEXT}">{"".join(shown)}</p><p'
        f' style="margin:0;font-size:14px;color:{LIGHT.muted}">{figures}</p>'
    )


def _shown(own: Iterable[Span], tag: str = "") -> Iterator[str]:
    return (to_markup(span, standalone=True, tag=tag) for span in own)


def _figures(metrics: Metrics) -> str:
    parts = [f"{metrics.num_generated_tokens:,} tokens in {metrics.num_spec_steps:,} target passes"]
    if metrics.alpha is not None:
        parts.append(
            f"{metrics.num_accepted_draft_tokens:,} of {metrics.num_judged:,} judged draft tokens"
            f" accepted (α = {metrics.alpha:.2f})"
        )
    if metrics.tokens_per_second is not None:
        parts.append(f"{metrics.tokens_per_second:,.0f} tokens/s")
    return " · ".join(parts)
