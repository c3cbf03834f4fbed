"""Messages from server to browser: numbered events without their large fields, as JSON text.

The lists of most probable tokens stay on the server: they are most of an event's size, and the browser requests them only
for the inspector. A batch is a string, so that Gradio sends it whole instead of computing a difference. `<` is escaped, so
that no token can look like a tag.
"""

from collections.abc import Sequence

from naive_speculate.events import OUTPUT_KINDS, Event
from ui.explain.case import warning
from ui.labels import to_json
from ui.run.runs import Run
from ui.run.settings import NOTHING

_TOPS = {"draft_top", "target_top", "residual_top", "draft_top_target", "target_top_draft"}
HEAVY = frozenset(_TOPS | {"cost_table", "logprobs", "prompt_logprobs"})
"""Fields that the page does not need to draw tokens and steps."""

RESYNC_EVENTS = 4000  # most events in one answer to a request for missed events


def batch(run: Run, first: int = 0, most: int | None = None) -> str:
    """One message: a run's events from number `first` on, at most `most`.

    The browser ignores messages with a smaller `serial` than that of the run it shows. If a run is `over`, it requests the
    events that the message omits.
    """
    done = run.done.is_set()  # read before the events: later ones belong to the next message
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
        "crowded": run.crowded,
        "title": run.title,
        "warning": warning((run.events[0].settings if run.events else None) or {}),
    }
    if first == 0 and done and (run.measure is None or (run.events and run.events[-1].speedup)):
        message["plain"] = plain_rows(run.plain)  # complete; until then the browser asks for it
    if first == 0 and run.settings is not None:
        message["query"] = run.settings.query(NOTHING)  # to repeat the run if the server forgets it
    return to_json(message)


def plain_rows(events: Sequence[Event], have: int = 0) -> list[tuple[float, int | None, str]]:
    """Time in seconds, id and text of each token of a run without drafts, from number `have` on."""
    tokens = [event for event in events if event.kind in OUTPUT_KINDS]
    return [(event.time, event.token_id, event.text or "") for event in tokens[have:]]
