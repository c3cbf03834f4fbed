"""Rooms: what opens below the lessons, closed at first; each can be linked to."""

import html
from typing import Any

from ui.assets import markup_of

ROOMS = {
    "yourself": ("Draft it yourself", "Write the next words, say how sure you are, and see your α beside the draft model's."),
    "doctor": ("Doctor", "What does your engine's log say of its drafts, and what may be wrong?"),
}
"""Titles, and what awaits one there, by the name that a link has."""


def room(name: str, **parts: str) -> str:
    """The markup of a room; see `markup_of`."""
    title, about = map(html.escape, ROOMS[name])
    return (
        f'<details class="ns-room" data-room="{name}"><summary><b>{title}</b> <span>{about}</span></summary>'
        f'<div class="ns-room-inside">{markup_of(name, **parts)}</div></details>'
    )


def room_in(query: Any) -> str:
    """The room that a link leads to; empty where it leads to none."""
    name = str(query.get("room", ""))
    return name if name in ROOMS else ""
