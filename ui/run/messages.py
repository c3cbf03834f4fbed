"""What crosses from server to browser: events in a slim form, numbered, in JSON text.

The lists of most probable tokens stay behind: they are most of an event's weight, and only the inspector, which
is drawn on the server, reads them. A batch is a *string*, so that Gradio compares and sends it whole instead of working
out the difference to the batch before; and `<` is escaped, so that nobody can take a token in it for a tag.
"""

from ui.explain.case import warning
from ui.labels import to_json
from ui.run.runs import Run
from ui.run.settings import NOTHING

HEAVY = frozenset(
    {
        "draft_top",
        "target_top",
        "residual_top",
        "cost_table",
        "logprobs",
        "prompt_logprobs",
        "draft_top_target",
        "target_top_draft",
    }
)
"""Fields that the page does not need to draw tokens and rounds."""

RESYNC_EVENTS = 4000
"""At most so many events are sent in answer to one request for what was missed."""


def batch(run: Run, first: int = 0, most: int | None = None) -> str:
    """One message to the browser: a run's events from number `first` on, at most so many.

    The browser ignores messages of a run older than the one it shows, which `serial` tells. Of a run that is `over` it asks for
    the events that a message leaves out.
    """
    done = run.done.is_set()  # before the events are looked at: those that come in between are for the next message
    events = run.events[first:] if most is None else run.events[first : first + most]
    message: dict[str, object] = {
        "run": run.id,
        "serial": run.serial,
        "first": first,
        "total": len(run.events),
        "events": [event.to_dict(without=HEAVY) for event in events],
        "done": done and first + len(events) == len(run.events),
        "over": done,
        "live": run.live,
        "title": run.title,
        "warning": warning((run.events[0].settings if run.events else None) or {}),
    }
    if first == 0 and run.settings is not None:
        message["query"] = run.settings.query(NOTHING)  # to run it again, should the server forget it
    return to_json(message)
