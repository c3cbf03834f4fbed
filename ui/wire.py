"""What crosses from server to browser: events in a slim form, numbered, in JSON text.

The three lists of most probable tokens stay behind: they are most of an event's weight, and only the inspector, which
is drawn on the server, reads them. A batch is a *string*, so that Gradio compares and sends it whole instead of working
out the difference to the batch before; and `<` is escaped, so that nobody can take a token in it for a tag.
"""

import json
from collections.abc import Sequence
from typing import Any

import orjson

from naive_speculate.events import Event

HEAVY = frozenset({"draft_top", "target_top", "residual_top", "cost_table"})
"""Fields that the page does not need to draw tokens and rounds."""

RESYNC_EVENTS = 4000
"""At most so many events are sent in answer to one request for what was missed."""


def batch(
    run: str,
    serial: int,
    events: Sequence[Event],
    first: int = 0,
    *,
    total: int | None = None,
    done: bool = False,
    live: bool = False,
    title: str = "",
) -> str:
    """One message to the browser.

    Args:
        run: Name of the run.
        serial: Grows with every run; the browser ignores messages of a run older than the one it shows.
        events: The events from number `first` on.
        first: Number of the first event here, counted from the run's start.
        total: How many events the run has by now; without it, as many as there are up to the last one here.
        done: Whether the run has no further events.
        live: Whether these come from a decoder that runs now, rather than from a recording.
        title: What the run is called above its tokens.
    """
    message = {
        "run": run,
        "serial": serial,
        "first": first,
        "total": first + len(events) if total is None else total,
        "events": [event.to_dict(without=HEAVY) for event in events],
        "done": done,
        "live": live,
        "title": title,
    }
    return _to_json(message).replace("<", "\\u003c")


def _to_json(message: dict[str, Any]) -> str:
    try:
        return orjson.dumps(message).decode()
    except orjson.JSONEncodeError:  # half a character, or a number of more than 64 bits, in a trace that somebody opened
        return json.dumps(message, separators=(",", ":"), allow_nan=False)
