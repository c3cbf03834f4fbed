"""What the server paints before the page's scripts run: the view that a link asks for, and what
the link shows where it is posted.

The page lies hidden below it, and `reveal` of `assets/js/page.js` removes it once the same view is
there and nothing in it moves any more.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from naive_speculate.events import EventKind
from naive_speculate.tools.show.drawing import step_svg
from naive_speculate.tools.show.spans import spans, to_markup
from ui.assets import PREVIEWS, folder, modules_for, render, variable
from ui.experiments.learn import LESSONS, lesson_in, read_steps, recording
from ui.experiments.rooms import ROOMS
from ui.host.limits import Arrive
from ui.run.runs import ShownRun

TITLE = "Naive Speculate"
SENTENCE = (
    "Watch speculative decoding: a small model drafts tokens, one pass of a large model verifies"
    " them all. Same output distribution, faster."
)
TABS = ("run", "explore", "learn")  # the tabs' names in links
FIRST_NEEDED = (
    "page",
    "glossary",
    "race",
    "samples",
    "stage",
    "inspector",
    "charts",
    "waterfall",
    "strategies",
)
"""The modules that the first tab mounts."""
# by view, the element that is there and still once the view is
_SHOWN = {
    "run": "#tokens [data-step]",
    "machine": ".ns-drawing svg",
    "explore": "#explore-speedup",
    "lesson": ".ns-lesson-text > *",
    "room": ":has(.ns-lesson-text > *) .ns-room[data-room='{room}'][open]",
}


@dataclass(frozen=True, slots=True)
class View:
    """What a link asks for: the `kind` is a key of `_SHOWN`, and `step` is one of the lesson or
    of the run, from 1; 0 is the lesson's opening, or no step of the run."""

    kind: str = "run"
    step: int = 0
    lesson: int = 0
    room: str = ""
    embedded: bool = False
    recorded: bool = True

    @property
    def title(self) -> str:
        """Of a posted link."""
        if self.lesson:
            opening, *steps = read_steps(self.lesson)
            name = f"Lesson {self.lesson}: {opening.title}"
            return f"{name} {steps[self.step - 1].title}" if self.step else name
        if self.kind == "room":
            return ROOMS[self.room][0]
        return f"Step {self.step} of speculative decoding" if self.step else ""

    @property
    def picture(self) -> str:
        """The name of the picture that a posted link shows."""
        name = f"lesson-{self.lesson}.png" if self.lesson else f"step-{self.step}.png"
        return f"previews/{name if name in PREVIEWS else 'run.png'}"


def asked(query: Mapping[str, str]) -> View:
    """The view that a link with this query shows, the nearest one if it does not exist."""
    embedded = query.get("embed") == "1"

    def number(name: str, most: int) -> int:
        value = query.get(name, "")
        return min(most, int(value[:7])) if value.isdecimal() else 0

    if query.get("lesson") or (query.get("tab") == "learn" and not query.get("room")):
        lesson = lesson_in(query) or min(len(LESSONS), max(1, number("lesson", 99)))
        step = number("step", len(read_steps(lesson)) - 1)
        return View("lesson", step, lesson, embedded=embedded)
    if query.get("room"):
        room = query["room"]
        return View("room", room=room) if room in ROOMS else View("lesson", lesson=1)
    if query.get("tab") == "explore":
        return View("explore")
    recorded = query.get("run", "recorded") == "recorded"
    kind = "machine" if embedded and query.get("stage") == "1" else "run"
    step = number("round", 999) if query.get("run") else 0
    return View(kind, step, embedded=embedded, recorded=recorded)


def arrivals(first: ShownRun, target: str | None) -> Arrive:
    """What `Headers` inserts into each page; `first` is the recorded run, of this target."""

    @cache
    def markup(view: View) -> str:
        return _markup(view, first, target)

    def arrive(address: str, query: Mapping[str, str]) -> tuple[str, str]:
        view = asked(query)
        title = f"{view.title} · {TITLE}" if view.title else TITLE
        picture = address + view.picture
        tags = render("preview", title=title, sentence=SENTENCE, picture=picture)
        return tags, markup(view)

    return arrive


def _markup(view: View, first: ShownRun, target: str | None) -> str:
    """Its parts are as in the page, in the page's styles. It also preloads the page's scripts
    and stops Gradio's loading screen."""
    lesson = json.loads(recording(view.lesson, target))["steps"] if view.lesson else []
    shows_run = view.recorded and view.kind in ("run", "machine")
    return render(
        "first_paint",
        view=view,
        lesson=lesson[view.step] if lesson else None,
        last=len(lesson) - 1,
        room=ROOMS.get(view.room),
        drawings=_drawings(first, view.step) if shows_run else {},
        tokens=Markup("".join(map(to_markup, spans(first.events)))) if shows_run else "",
        shown=_SHOWN[view.kind].format(room=view.room),
        folder=folder(),
        scripts=sorted(modules_for(FIRST_NEEDED)),
    )


def _drawings(run: ShownRun, step: int) -> dict[str, Markup]:
    """A step of a run, for wide and for narrow pages."""
    steps = [event.step or 0 for event in run.events if event.kind == EventKind.STEP]
    chosen = steps[min(step or 1, len(steps)) - 1]
    return {
        layout: Markup(step_svg(run.events, chosen, layout=layout, paint=variable))
        for layout in ("medium", "narrow")
    }


def previews() -> Route:
    """The route of the pictures that links to the page show elsewhere."""

    async def picture(request: Request) -> Response:
        file = PREVIEWS.get(request.path_params["name"])
        return FileResponse(file) if file else Response(status_code=404)

    return Route("/previews/{name}", picture)
