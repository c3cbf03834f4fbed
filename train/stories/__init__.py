"""Simple stories for the target to learn plain English from, as TinyStories did (arXiv 2305.07759).

Here they come from a generator instead of a language model: a plot moves characters and things about in a ``World``
that checks every step, and a ``Narrator`` tells it with a choice of sentences each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from train.stories import plots_deeds, plots_things
from train.stories.scenes import Telling

PLOTS = plots_things.PLOTS + plots_deeds.PLOTS


def tell(seed: int) -> str:
    """One story; the same seed always gives the same text."""
    rng = random.Random(seed)
    return rng.choice(PLOTS)(Telling.begin(rng))


def tell_many(seed: int, characters: int) -> Iterator[str]:
    """Different stories of about ``characters`` characters of text together."""
    number = 0
    while characters > 0:
        story = tell(seed * 1_000_003 + number)
        number += 1
        characters -= len(story)
        yield story
