"""Simple stories and other plain texts for the target to learn English from, as TinyStories did (arXiv 2305.07759).

Here they come from a generator instead of a language model. About half are tales: a plot moves characters and things about
in a ``World`` that checks every step, and a ``Narrator`` tells it with a choice of sentences each time. The others (letters,
dialogues, questions with answers, lists, verses, …) are templates over tables of words and of true facts.
"""

import random
from collections.abc import Iterator
from itertools import accumulate

from train.stories import plots_deeds, plots_knowing, plots_things
from train.stories.kinds import fables, letters, lists, questions, school, talk, tasks, told, verses
from train.stories.phrases import tidy
from train.stories.scenes import Kind, Telling

PLOTS: tuple[Kind, ...] = plots_things.PLOTS + plots_deeds.PLOTS + plots_knowing.PLOTS
# how to tell each kind of text, and how often; as many as to make the tales about half of all characters
KINDS: tuple[tuple[Kind, float], ...] = (
    *questions.KINDS, *school.KINDS, *talk.KINDS, *letters.KINDS, *lists.KINDS,
    *told.KINDS, *verses.KINDS, *fables.KINDS, *tasks.KINDS,
)  # fmt: skip
TALE_WEIGHT = 48.0

_CHOICES = PLOTS + tuple(kind for kind, _ in KINDS)
_SHARES = tuple(accumulate([TALE_WEIGHT / len(PLOTS)] * len(PLOTS) + [weight for _, weight in KINDS]))


def tell(seed: int) -> str:
    """One text; the same seed always gives the same one."""
    rng = random.Random(seed)
    return tidy(kind_of(rng)(Telling.begin(rng)))


def kind_of(rng: random.Random) -> Kind:
    """What to tell: the first choice that a text makes."""
    return rng.choices(_CHOICES, cum_weights=_SHARES)[0]


def tell_many(seed: int, characters: int) -> Iterator[str]:
    """Different texts of about ``characters`` characters together."""
    number = 0
    while characters > 0:
        story = tell(seed * 1_000_003 + number)
        number += 1
        characters -= len(story)
        yield story
