"""What is on the screen before the page is: the recorded run's text, in the HTML itself.

Gradio's scripts take a phone some seconds to fetch and to run. Until the stage stands there (`assets/js/stage.js` takes this
away then), a visitor reads what it will show. The same place names the page's scripts, so that they are fetched meanwhile, and
ends what Gradio's loading screen leaves running.
"""

import html
from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from naive_speculate.events import TOKEN_KINDS, Event, EventKind
from ui.assets import folder, markup_of, modules_for, sheets, variables
from ui.run.opening import ELSEWHERE

MARK = b"<gradio-app"
"""What Gradio's HTML has where the page will be."""
FIRST_NEEDED = (
    "theme", "views", "glossary", "loading", "sheet", "stage", "inspector", "charts", "waterfall", "opening", "others"
)  # fmt: skip
"""The modules that the first tab mounts."""


def early_view(tagline: str, events: Iterable[Event]) -> str:
    """The markup: title and tagline, and the run's tokens as the stage shows them.

    Args:
        tagline: Stands beside the page's name; HTML.
        events: Those of the run.
    """
    return markup_of(
        "early",
        elsewhere=" ".join(ELSEWHERE),
        styles=variables() + sheets("tokens", "early"),
        tagline=tagline,
        tokens="".join(_spans(events)),
        preloads=_preloads(),
    )


def _preloads() -> str:
    """Links that have the browser fetch the first tab's scripts meanwhile; they are beside the page, also behind a proxy."""
    names = sorted(modules_for(FIRST_NEEDED))
    return "".join(f'<link rel="modulepreload" fetchpriority="low" href=".{folder()}/{name}.js">' for name in names)


def _spans(events: Iterable[Event]) -> Iterable[str]:
    tokens: dict[tuple[int | None, int | None, bool], Event] = {}
    for event in events:
        if event.kind == EventKind.STARTED:
            for text in event.prompt_texts or [event.prompt or ""]:
                yield _span("prompt", text)
        elif event.kind in TOKEN_KINDS:
            own = event.kind in (EventKind.RESAMPLED, EventKind.BONUS)  # not the verdict on a draft
            tokens[event.step, event.index, own] = event
    for event in tokens.values():
        yield _span(event.kind, event.text or "", "del" if event.kind == EventKind.REJECTED else "span", ' data-step=""')


def _span(kind: str, text: str, tag: str = "span", step: str = "") -> str:
    return f'<{tag} class="ns-token" data-kind="{kind}"{step}>{html.escape(text)}</{tag}>'


class Early:
    """Around the server's routes: puts markup into the page's HTML.

    Args:
        app: The routes.
        view: The markup that stands before the page.
    """

    def __init__(self, app: ASGIApp, view: str) -> None:
        self._app = app
        self._view = view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; only HTML with a page in it is changed."""
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
