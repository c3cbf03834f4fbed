"""True facts and the many ways to put them: tables of subjects, sums that are worked out, explanations."""

import random

from train.stories.facts.subject import SUBJECTS, Fact, Subject
from train.stories.facts.sums import SUMS
from train.stories.facts.why import EXPLANATIONS

DOUBTED = tuple(subject for subject in SUBJECTS.values() if subject.check)
_SUBJECTS = tuple(SUBJECTS.values())
_WEIGHTS = tuple(7.0 if name == "capitals" else 1.0 for name in SUBJECTS)


__all__ = ["DOUBTED", "EXPLANATIONS", "SUBJECTS", "SUMS", "Fact", "any_fact", "any_subject", "facts_of_one_kind"]


def any_subject(rng: random.Random) -> Subject:
    return rng.choices(_SUBJECTS, _WEIGHTS)[0]


def any_fact(rng: random.Random) -> Fact:
    """From the tables mostly, sometimes a sum or an explanation."""
    chance = rng.random()
    if chance < 0.68:
        return any_subject(rng).fact(rng)
    return rng.choice(SUMS)(rng) if chance < 0.85 else rng.choice(EXPLANATIONS).fact(rng)


def facts_of_one_kind(rng: random.Random, count: int) -> list[Fact]:
    """Different facts of one subject, as a lesson treats them."""
    if rng.random() < 0.2:
        return [rng.choice(SUMS)(rng) for _ in range(count)]
    return any_subject(rng).facts(rng, count)
