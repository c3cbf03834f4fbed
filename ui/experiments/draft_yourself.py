"""The room where a visitor is the drafter: they write the next word and how sure they are, and
the target judges it.

Each word is one stateless call that contains the text so far. The engine makes one step with the
word as its draft (`Request.given_draft`), and one with the draft model's own, for its α at the
same position.
"""

import math
import threading
from functools import partial
from typing import Any

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.serving import Request
from naive_speculate.speculate.request import GivenDraft
from ui.assets import component
from ui.experiments.rooms import answer_form, room, text_of
from ui.host.catalog import DECODING, Catalog

WORDS = 10
TEMPERATURE = 0.8
MOST_CHARACTERS, MOST_LETTERS, MOST_TOKENS = 600, 40, 2000
MOST_DRAFTS = 16
TITLE = "This word cannot be judged"
OPENING = "([{“‘\"'\n—"
CLOSING = ",.;:!?)]}”’…-"


def build_draft_yourself(catalog: Catalog) -> None:
    """Build the room inside the current Blocks context, if any pair has a draft model."""
    if _pair(catalog) is None:
        return
    markup = room("yourself", "draft_yourself", words=WORDS)
    names = {"label": "Draft it yourself", "elem_id": "yourself"}
    view = component("draft_yourself", markup, events=["word"], **names)
    queue: dict[str, Any] = {"concurrency_id": DECODING, "concurrency_limit": catalog.concurrency}
    answer_form(view.word, view, partial(judge, catalog), TITLE, **queue)


def judge(catalog: Catalog, fields: dict[str, Any]) -> dict[str, Any]:
    """One word's verdict by the first pair with a draft model; a ValueError names the invalid
    field.

    The browser sends the "text" so far, its "tokens" if known, the "word", how "sure" in
    percent, the "seed", and the word's "number" from 0. It gets the "text" that follows, the
    "tokens" of the whole text, the "drafts" with their verdicts, the "next" token, and the exact
    "alpha" of the visitor's draft and "draft_alpha" of the draft model.
    """
    tokens = fields.get("tokens") or []
    if (
        not isinstance(tokens, list)
        or len(tokens) > MOST_TOKENS
        or not all(type(token) is int for token in tokens)
    ):
        raise ValueError(f"tokens must be at most {MOST_TOKENS} token ids")
    text = text_of(fields, "text", "the text", MOST_CHARACTERS + 20 * MOST_TOKENS * bool(tokens))
    word = text_of(fields, "word", "the word", MOST_LETTERS).strip()
    if len(word.split()) > 1:
        raise ValueError("please write one word")
    prob = _within("sure", fields.get("sure"), 100) / 100
    number = int(_within("number", fields.get("number"), WORDS - 1))
    seed = int(_within("seed", fields.get("seed"), 2**32 - 1)) * WORDS + number
    # a text may have several tokenizations
    draft, prompt = GivenDraft(spaced(text, word), prob), tokens or text
    # No token may end the text, because the game has a fixed number of words.
    params = SamplingParams(
        max_tokens=1 + MOST_DRAFTS, min_tokens=1 + MOST_DRAFTS, temperature=TEMPERATURE, seed=seed
    )
    mine = _first_step(
        catalog, Request(prompt, params, num_draft_tokens=MOST_DRAFTS, given_draft=draft)
    )
    theirs = _first_step(catalog, Request(prompt, params, num_draft_tokens=1, drafter="model"))
    proposed = [event for event in mine if event.kind == EventKind.PROPOSED]
    output = [event for event in mine if event.kind in OUTPUT_KINDS]
    started = mine.started
    assert started is not None, "a run starts with this event"
    return {
        "text": "".join(event.text or "" for event in output),
        "tokens": [*(started.prompt_token_ids or []), *(event.token_id for event in output)],
        "drafts": [
            _summary(event)
            for event in mine
            if event.kind in (EventKind.ACCEPTED, EventKind.REJECTED)
        ],
        "drafted": "".join(event.text or "" for event in proposed),
        "next": _summary(output[-1]),
        "alpha": proposed[0].expected_accept,
        "draft_alpha": next(
            event.expected_accept for event in theirs if event.kind == EventKind.PROPOSED
        ),
        "number": number,
    }


def spaced(text: str, word: str) -> str:
    """The word with a space before it if the text needs one."""
    joins = text[-1:].isspace() or text[-1:] in OPENING or word[0] in CLOSING
    return word if joins else f" {word}"


def _pair(catalog: Catalog) -> str | None:
    return next(
        (name for name, served in catalog.pairs.items() if "draft" in served.engine.about.models),
        None,
    )


def _first_step(catalog: Catalog, request: Request) -> Trace:
    """The events of a run's first step, which must have draft tokens; the run is cancelled
    afterwards."""
    cancel, trace = threading.Event(), Trace()
    for event in catalog.stream(_pair(catalog) or "", request, cancel):
        if not cancel.is_set():
            trace.append(event)
        if event.kind == EventKind.STEP:
            cancel.set()
    if trace.started is None or not any(event.kind == EventKind.PROPOSED for event in trace):
        raise ValueError("the text has reached the model's limit: start again")
    return trace


def _summary(event: Event) -> dict[str, Any]:
    odds = {
        "p": event.target_prob,
        "q": event.draft_prob,
        "u": event.uniform,
        "keep": event.accept_prob,
    }
    return {"kind": event.kind.value, "text": event.text or event.token or "", **odds}


def _within(name: str, value: Any, most: float) -> float:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not math.isfinite(value)
        or not 0 <= value <= most
    ):
        raise ValueError(f"{name} must be a number from 0 to {most:g}, got {value!r:.40}")
    return value
