"""The recorded run's text in the HTML itself, visible before the page's scripts run.

A phone needs some seconds to fetch and run Gradio's scripts. Until the stage is drawn (`assets/js/stage.js` then removes
this view), a visitor reads what it will show. The template also preloads the page's scripts and stops Gradio's loading screen.
"""

from collections.abc import Iterable, Iterator

from markupsafe import Markup
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from naive_speculate.events import TOKEN_KINDS, Event, EventKind
from ui.assets import folder, modules_for, render, sheets, variables

ELSEWHERE = ("run", "lesson", "room", "lecture", "embed")
"""Query parameters of links that lead to something other than the home page."""
MARK = b"<gradio-app"  # the tag in Gradio's HTML that the page replaces
FIRST_NEEDED = (
    "theme", "views", "glossary", "loading", "sheet", "race", "stage", "zoom", "inspector", "charts", "waterfall", "strategies"
)  # fmt: skip
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


class FirstPaint:
    """Middleware that inserts markup into the page's HTML, before the page."""

    def __init__(self, app: ASGIApp, view: str) -> None:
        self._app = app
        self._view = view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; only the page's HTML is changed."""
        if scope["type"] != "http" or scope["method"] != "GET" or "." in scope["path"]:
            return await self._app(scope, receive, send)
        start: Message | None = None
        body = bytearray()

        async def held(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                if not MutableHeaders(scope=message).get("content-type", "").startswith("text/html"):
                    return await send(message)
                start = message
                return None
            if start is None:
                return await send(message)
            body.extend(message.get("body", b""))
            if message.get("more_body"):
                return None
            whole = bytes(body).replace(MARK, self._view.encode() + MARK, 1)
            MutableHeaders(scope=start)["content-length"] = str(len(whole))
            await send(start)
            return await send({"type": "http.response.body", "body": whole})

        return await self._app(scope, receive, held)
