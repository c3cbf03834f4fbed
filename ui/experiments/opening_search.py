"""Searches for the step that the page opens with: some draft tokens accepted, then a close rejection."""

import threading
from collections.abc import Iterator
from dataclasses import replace

from naive_speculate.events import Event, EventKind
from naive_speculate.events.trace import Trace
from ui.experiments.lessons.find_examples import SEEN, DraftedStep, drafted_steps, text_before
from ui.experiments.sweep import PROMPTS
from ui.host.catalog import Catalog
from ui.run.opening import DraftToken, Opening
from ui.run.settings import Settings

DRAFTS = 5
KEPT = (3, 4)
WANTED = 0.4
NEAR = 0.1
"""The wanted p/q of the rejected draft token, and the tolerance."""
TOKENS = 60
SEEDS = 40
SURE = 0.99
"""A draft token with a larger p shows nothing."""
LONGEST = 9
"""Longer words do not fit on a phone."""

Fit = tuple[bool, bool, bool, bool, bool, bool, float]
"""How well a step fits, the most important criterion first; larger is better."""


def search(
    catalog: Catalog, settings: Settings, prompts: list[str] = PROMPTS, seeds: int = SEEDS
) -> Iterator[tuple[int, int, Opening | None]]:
    """Run several prompts with several seeds, the settings' own first.

    Yields:
        Runs done, runs in total, and the best step so far, which need not meet every criterion.
    """
    best: tuple[Fit, Opening] | None = None
    total = len(prompts) * seeds
    for number in range(total):
        one = replace(
            settings,
            prompt=prompts[number % len(prompts)],
            seed=(settings.seed or 0) + number // len(prompts),
            max_tokens=TOKENS,
            num_draft_tokens=DRAFTS,
            drafter="model",
            verify_strategy="speculative_sampling",
        )
        trace = Trace(catalog.stream(one.pair, one.request(), threading.Event()))
        for found in filter(usable, drafted_steps(trace)):
            candidate = opening_of(trace, found)
            if best is None or fit(candidate) > best[0]:
                best = fit(candidate), candidate
        yield number + 1, total, best and best[1]


def usable(found: DraftedStep) -> bool:
    """Whether it has a whole window, an accepted draft token, and a rejected one that was resampled."""
    judged = found.drafts[: found.num_accepted + 1]
    return (
        len(found.drafts) == DRAFTS
        and found.num_accepted > 0
        and found.rejected is not None
        and found.added is not None
        and all(event.text and event.text.strip() for event in [*found.drafts, found.added])
        and all(None not in (event.target_prob, event.draft_prob, event.uniform) for event in judged)
    )


def fit(opening: Opening) -> Fit:
    """How well a step fits."""
    rejected, accepted = opening.rejected, opening.drafts[: opening.num_accepted]
    texts = [draft.text for draft in opening.drafts] + [opening.resampled]
    return (
        opening.num_accepted in KEPT,
        abs(rejected.accept_prob - WANTED) <= NEAR,
        opening.all_words,
        rejected.p >= SEEN and all(len(text.strip()) <= LONGEST for text in texts),
        {draft.accept_prob < 1 for draft in accepted} == {True, False},  # the draw matters for some, not for all
        all(draft.p <= SURE for draft in accepted),
        min(rejected.p, *(draft.p for draft in accepted)) - abs(rejected.accept_prob - WANTED),  # visible bars
    )


def opening_of(trace: Trace, found: DraftedStep) -> Opening:
    """A run's step, as the page shows it."""
    before = text_before(trace, found.before)
    return Opening(before, [_draft_token(event) for event in found.drafts], (found.added and found.added.text) or "")


def _draft_token(event: Event) -> DraftToken:
    if event.kind == EventKind.DISCARDED:
        return DraftToken(event.text or "", 0.0, 0.0, 0.0, "discarded")
    p, q, u = (round(value or 0.0, 6) for value in (event.target_prob, event.draft_prob, event.uniform))
    return DraftToken(event.text or "", p, q, u, event.kind.value)
