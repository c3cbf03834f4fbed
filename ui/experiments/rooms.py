"""Rooms: sections below the lessons, closed at first; each has a link of its own."""

from typing import Any

from ui.assets import render

ROOMS = {
    "yourself": ("Draft it yourself", "Write the next words, say how sure you are, and compare your α with the draft model's."),
    "differ": ("Why do two texts differ?", "With and without drafts, or from two engines: is it rounding, or an error?"),
    "doctor": ("Doctor", "What does your engine's log say about its draft tokens, and what may be wrong?"),
}
"""Titles and descriptions, by the name in links."""


def room(name: str, template: str, **values: Any) -> str:
    """The markup of a room around a template; see `render`."""
    title, about = ROOMS[name]
    return render("room", name=name, title=title, about=about, page=f"{template}.html", **values)


def room_in(query: Any) -> str:
    """The room that a link leads to; empty for none."""
    name = str(query.get("room", ""))
    return name if name in ROOMS else ""
