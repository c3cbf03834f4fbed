"""Looks for the round that the page opens with: some guesses kept, then one refused that might as well have been kept."""

import threading
from collections.abc import Iterator
from dataclasses import replace

from naive_speculate.events import Event, EventKind
from naive_speculate.events.trace import Trace
from ui.experiments.lessons.places import SEEN, Round, rounds, text_before
from ui.experiments.sweep import PROMPTS
from ui.host.catalog import Catalog
from ui.run.opening import Guess, Opening
from ui.run.settings import Settings

GUESSES = 5
KEPT = (3, 4)
WANTED = 0.4
NEAR = 0.1
"""p/q of the refused guess is to be about so much."""
TOKENS = 60
SEEDS = 40
SURE = 0.99
"""A guess that the large model gives more tells nothing."""
LONGEST = 9
"""Longer words do not fit the picture on a phone."""

Fit = tuple[bool, bool, bool, bool, bool, bool, float]
"""How well a round fits, the weightiest first; larger is better."""


def search(
    catalog: Catalog, settings: Settings, prompts: list[str] = PROMPTS, seeds: int = SEEDS
) -> Iterator[tuple[int, int, Opening | None]]:
    """Run several prompts with several seeds, the settings' own first.

    Yields:
        How many runs are done, of how many, and the round that fits best so far, which need not fit in every way.
    """
    best: tuple[Fit, Opening] | None = None
    total = len(prompts) * seeds
    for number in range(total):
        one = replace(
            settings,
            prompt=prompts[number % len(prompts)],
            seed=(settings.seed or 0) + number // len(prompts),
            max_tokens=TOKENS,
            num_draft_tokens=GUESSES,
            drafter="model",
            verify_strategy="speculative_sampling",
        )
        trace = Trace(catalog.stream(one.pair, one.request(), threading.Event()))
        for found in filter(tells, rounds(trace)):
            candidate = opening_of(trace, found)
            if best is None or fit(candidate) > best[0]:
                best = fit(candidate), candidate
        yield number + 1, total, best and best[1]


def tells(found: Round) -> bool:
    """Whether there is something to tell: a whole window, a guess that was kept, and one that was refused and replaced."""
    judged = found.drafts[: found.kept + 1]
    return (
        len(found.drafts) == GUESSES
        and found.kept > 0
        and found.refused is not None
        and found.added is not None
        and all(event.text and event.text.strip() for event in [*found.drafts, found.added])
        and all(None not in (event.target_prob, event.draft_prob, event.uniform) for event in judged)
    )


def fit(opening: Opening) -> Fit:
    """How well a round serves."""
    refused, kept = opening.refused, opening.guesses[: opening.kept]
    texts = [guess.text for guess in opening.guesses] + [opening.instead]
    return (
        opening.kept in KEPT,
        abs(refused.keep - WANTED) <= NEAR,
        opening.words,
        refused.p >= SEEN and all(len(text.strip()) <= LONGEST for text in texts),
        any(guess.keep < 1 for guess in kept) and any(guess.keep == 1 for guess in kept),  # the die matters, and need not
        all(guess.p <= SURE for guess in kept),
        min(refused.p, *(guess.p for guess in kept)) - abs(refused.keep - WANTED),  # bars of something probable
    )


def opening_of(trace: Trace, found: Round) -> Opening:
    """A run's round, as the page tells it."""
    before = text_before(trace, found.before)
    return Opening(before, [_guess(event) for event in found.drafts], (found.added and found.added.text) or "")


def _guess(event: Event) -> Guess:
    if event.kind == EventKind.DISCARDED:
        return Guess(event.text or "", 0.0, 0.0, 0.0, "discarded")
    p, q, u = (round(value or 0.0, 6) for value in (event.target_prob, event.draft_prob, event.uniform))
    return Guess(event.text or "", p, q, u, event.kind.value)
