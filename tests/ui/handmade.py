"""Small traces made by hand, event by event, so that a test can say what must come out of each."""

from collections.abc import Sequence
from typing import Any

from naive_speculate.events import Event, EventKind, FinishReason, TokenProb
from naive_speculate.events.trace import Trace

WORDS = ["the", " king", " queen", " sat", " on", " a", " throne", ".", "\n", " once"]


def top(*pairs: tuple[str, float]) -> list[TokenProb]:
    """A list of most probable tokens; a word's id is its place in `WORDS`, or 100 and more."""
    return [
        TokenProb(WORDS.index(t) if t in WORDS else 100 + i, t, p) for i, (t, p) in enumerate(pairs)
    ]


def token(kind: EventKind, text: str, index: int = 0, step: int = 0, **numbers: Any) -> Event:
    """A token event."""
    token_id = WORDS.index(text) if text in WORDS else 100
    return Event(
        kind=kind,
        step=step,
        index=index,
        position=index,
        token_id=token_id,
        token=text,
        text=text,
        **numbers,
    )


def run(windows: Sequence[tuple[int, int]], *, finished: bool = True, **settings: Any) -> Trace:
    """A run of steps, each given as (drafted, accepted); drafting 1 ms a token, verifying 10 ms,
    1 ms for the rest."""
    settings = {
        "verify_strategy": "speculative_sampling",
        "temperature": 1.0,
        "num_draft_tokens": 5,
        **settings,
    }
    trace = Trace(
        [Event(EventKind.STARTED, schema_version=1, settings=settings, prompt="Once", seed=7)]
    )
    clock, position = 0.0, 0
    for step, (drafted, accepted) in enumerate(windows):
        clock += 0.011 + 0.001 * drafted
        kinds = [EventKind.ACCEPTED] * accepted + [EventKind.REJECTED] * (accepted < drafted)
        kinds += [EventKind.DISCARDED] * (drafted - len(kinds))
        words = [WORDS[(step + i) % len(WORDS)] for i in range(drafted + 1)]
        events = [token(EventKind.PROPOSED, words[i], i, step) for i in range(drafted)]
        events += [token(kind, words[i], i, step) for i, kind in enumerate(kinds)]
        events.append(
            token(
                EventKind.RESAMPLED if accepted < drafted else EventKind.BONUS,
                words[-1],
                drafted,
                step,
            )
        )
        for event in events:
            event.time, event.position = clock, position + (event.index or 0)
        position += accepted + 1
        trace.events += events
        seconds = {
            "draft_seconds": 0.001 * drafted,
            "verify_seconds": 0.010,
            "total_seconds": 0.011 + 0.001 * drafted,
        }
        trace.append(
            Event(
                EventKind.STEP,
                step=step,
                time=clock,
                num_draft=drafted,
                num_accepted=accepted,
                **seconds,
            )
        )
    if finished:
        trace.append(Event(EventKind.FINISHED, time=clock, finish_reason=FinishReason.LENGTH))
    return trace


def step_of(*events: Event, **settings: Any) -> Trace:
    """A run of one step made of these token events."""
    settings = {"verify_strategy": "speculative_sampling", "temperature": 1.0, **settings}
    return Trace(
        [
            Event(EventKind.STARTED, schema_version=1, settings=settings),
            *events,
            Event(EventKind.STEP, step=0),
        ]
    )
