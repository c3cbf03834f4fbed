"""The coloured tokens of a run: what terminal, notebook and page show of them.

`spans` lists them, `to_markup` draws one in HTML, and `terminal.to_rich` one in a terminal. The
page's scripts make elements of the same form of the tokens that arrive (`assets/js/tokens.js`).
"""

import html
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from naive_speculate.events.event import TARGET_KINDS, TOKEN_KINDS, VERDICT_KINDS, Event, EventKind
from naive_speculate.tools.show.palette import PROMPT, STYLES, Style

LEGEND = (*VERDICT_KINDS, *TARGET_KINDS)
"""The kinds of a finished run's tokens, in the order of legends."""
_OUTSIDE = (EventKind.PROPOSED, EventKind.REJECTED, EventKind.DISCARDED)


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text of one kind: `"prompt"` or a token's. `step` and `index` are those of a
    token's events, by which the page finds its explanation."""

    kind: str
    text: str
    step: int | None = None
    index: int | None = None
    title: str = ""  # the kind and the probabilities, for a hint
    unknown: bool = False  # to a draft with another tokenizer
    template: bool = False  # added to the prompt's words by a chat template

    @property
    def style(self) -> Style:
        return STYLES.get(self.kind, PROMPT)

    @property
    def outside(self) -> bool:
        """Whether it is not part of the text; copying the text leaves it out."""
        return self.kind in _OUTSIDE


def spans(events: Iterable[Event]) -> Iterator[Span]:
    """Those of one sequence, the prompt first. A draft token's verdict replaces its proposal."""
    tokens: list[Event] = []
    proposed: dict[tuple[int | None, int | None], int] = {}  # where each open proposal is
    for event in events:
        place = (event.step, event.index)
        if event.kind == EventKind.STARTED:
            yield from prompt_spans(event)
        elif event.kind in VERDICT_KINDS and place in proposed:
            tokens[proposed.pop(place)] = event
        elif event.kind in TOKEN_KINDS:
            if event.kind == EventKind.PROPOSED and None not in place:
                proposed[place] = len(tokens)
            tokens.append(event)
    yield from map(token_span, tokens)


def prompt_spans(started: Event) -> Iterator[Span]:
    """The prompt's words, and what a chat template puts around them."""
    texts, at = started.prompt_texts or [started.prompt or ""], 0
    words = [(0, len(texts))] if started.prompt_words is None else started.prompt_words
    for start, end in [*words, (len(texts), len(texts))]:
        start = max(at, start)
        end = max(start, end)
        for part, template in ((texts[at:start], True), (texts[start:end], False)):
            if text := "".join(part):
                yield Span("prompt", text, template=template)
        at = end


def token_span(event: Event) -> Span:
    """A token's; a line break outside the text must not break the line: it becomes ⏎."""
    text = event.text or ""
    if event.kind in _OUTSIDE:
        text = text.replace("\n", "⏎")
    numbers = (("p", event.target_prob), ("q", event.draft_prob), ("u", event.uniform))
    shown = [f"{name} = {value:.3g}" for name, value in numbers if value is not None]
    title = ", ".join([STYLES[event.kind].label, *shown])
    unknown = bool(event.unknown_to_draft)
    return Span(str(event.kind), text, event.step, event.index, title, unknown)


def legend(kinds: Iterable[str] = LEGEND) -> list[Span]:
    """The mark and the name of each kind."""
    styles = {kind: Span(kind, "").style for kind in kinds}
    return [Span(kind, f"{style.mark} {style.label}") for kind, style in styles.items()]


def to_markup(span: Span, *, chip: bool = False, standalone: bool = False, tag: str = "") -> str:
    """As an HTML element, `tag` or the one for its kind; all text is escaped. The page's style
    sheet gives its looks, as text or as a `chip`, which names its kind for screen readers; a
    `standalone` one has them with it."""
    tag = tag or ("del" if span.kind == EventKind.REJECTED else "span")
    text, inside = html.escape(span.text), ""
    if standalone:
        looks = f'style="{_looks(span)}"'
        if span.title:
            looks += f' title="{html.escape(span.title)}"'
    else:
        data = {"step": span.step, "index": span.index, "template": "" if span.template else None}
        looks = f'class="ns-token{" ns-chip" if chip else ""}" data-kind="{span.kind}"' + "".join(
            f' data-{name}="{value}"' for name, value in data.items() if value is not None
        )
    if chip:
        inside = f'<span class="ns-said"> {span.style.label}</span>'
    return f"<{tag} {looks}>{text}{inside}</{tag}>"


def _looks(span: Span) -> str:
    style = span.style
    looks = f"color:{style.light}"
    if style.line:
        looks += f";text-decoration:{style.line};background:{style.light}1f"
    if span.outside:  # what is selected is copied: the text
        looks += ";-webkit-user-select:none;user-select:none"
    return looks
