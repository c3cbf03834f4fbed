"""The recorded run's text in the HTML itself, visible before the page's scripts run.

A phone needs some seconds to fetch and run Gradio's scripts. Until the stage is drawn (`assets/js/stage.js` then removes
this view), a visitor reads what it will show. The template also preloads the page's scripts and stops Gradio's loading screen.
"""

from collections.abc import Iterable, Iterator

from markupsafe import Markup

from naive_speculate.events import TOKEN_KINDS, Event, EventKind
from ui.assets import folder, modules_for, render, sheets, variables

ELSEWHERE = ("run", "lesson", "room", "lecture", "embed")
"""Query parameters of links that lead to something other than the home page."""
FIRST_NEEDED = ("page", "glossary", "race", "stage", "inspector", "charts", "waterfall", "strategies")
"""The modules that the first tab mounts."""


def first_view(tagline: str, events: Iterable[Event]) -> str:
    """The markup: title, tagline, and a run's tokens as the stage shows them."""
    return render(
        "first_paint",
        elsewhere=" ".join(ELSEWHERE),
        styles=Markup(variables() + sheets("tokens", "first_paint")),
        tagline=tagline,
        tokens=_tokens(events),
        folder=folder(),
        scripts=sorted(modules_for(FIRST_NEEDED)),
    )


def _tokens(events: Iterable[Event]) -> Iterator[tuple[str, str]]:
    """Kind and text of each token; of a draft token, its verdict."""
    tokens: dict[tuple[int | None, int | None, bool], Event] = {}
    for event in events:
        if event.kind == EventKind.STARTED:
            yield "prompt", event.prompt or "".join(event.prompt_texts or [])
        elif event.kind in TOKEN_KINDS:
            by_target = event.kind in (EventKind.RESAMPLED, EventKind.BONUS)
            tokens[event.step, event.index, by_target] = event
    for event in tokens.values():
        yield event.kind.value, event.text or ""
