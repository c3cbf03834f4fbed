"""Where acceptance ends: from a position in the text on (`fade`), or from an index of the window
on (`drop`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter

from naive_speculate.tools.doctor.reading import Stretch

ALIVE, DEAD = 0.2, 0.05
"""Shares of steps that accept a draft token: at least the first before an end of acceptance, at
most the second after it."""
FEWEST = 8  # steps on each side of such an end
EVIDENCE = 8.0  # least logarithm of how much better two rates explain the steps than one
# most probable chance event that still counts as the end of acceptance within windows
CHANCE = 0.03
UNKNOWN_STEPS = 100


@dataclass(frozen=True, slots=True)
class Fade:
    """Acceptance that ends during a run."""

    position: float | None  # tokens before the end of acceptance; None if unknown
    # before, after: shares of steps that accept a draft token
    before: float
    after: float
    steps: float  # steps after the end
    stays: bool  # whether acceptance stays at zero until the end of the text


def fade(course: Sequence[Stretch]) -> Fade | None:
    """Where acceptance ends during a run."""
    course = [stretch for stretch in course if stretch.steps > 0]
    if course and all(stretch.position is not None for stretch in course):
        return _by_position(sorted(course, key=lambda stretch: stretch.position or 0.0))
    return _by_report(course)


def _by_position(course: Sequence[Stretch]) -> Fade | None:
    """The most likely change between two rates, if the second is about zero."""
    steps = list(accumulate(stretch.steps for stretch in course))
    hits = list(accumulate(stretch.hits for stretch in course))
    halves = [
        (end, hit, step, hits[-1] - hit, steps[-1] - step)
        for end, (hit, step) in enumerate(zip(hits, steps, strict=True), start=1)
        if step >= FEWEST and steps[-1] - step >= FEWEST
    ]
    if not halves:
        return None
    gain, half = max(
        ((likelihood(*half[1:3]) + likelihood(*half[3:]), half) for half in halves),
        key=itemgetter(0),
    )
    end, hit, step, hits_after, steps_after = half
    before, after = hit / step, hits_after / steps_after
    if before < ALIVE or after > DEAD or gain - likelihood(hits[-1], steps[-1]) < EVIDENCE:
        return None
    return Fade(course[end].position, before, after, steps_after, stays=True)


def _by_report(course: Sequence[Stretch]) -> Fade | None:
    long = [stretch for stretch in course if stretch.steps >= FEWEST]
    dead = [stretch for stretch in long if stretch.hits / stretch.steps <= DEAD]
    alive = [stretch for stretch in long if stretch.hits / stretch.steps >= ALIVE]
    if not dead or not alive:
        return None
    before, after = (
        sum(s.hits for s in part) / sum(s.steps for s in part) for part in (alive, dead)
    )
    steps = sum(stretch.steps for stretch in dead)
    if -steps * math.log1p(-min(before, 0.999)) < EVIDENCE:
        return None
    runs = [is_dead for is_dead, _ in groupby(long, key=lambda one: one.hits / one.steps <= DEAD)]
    return Fade(None, before, after, steps, stays=runs == [False, True])


def likelihood(hits: float, steps: float) -> float:
    """The logarithm of the likelihood of so many hits at the rate that explains them best."""
    return sum(count * math.log(count / steps) for count in (hits, steps - hits) if count > 0)


def drop(rates: Sequence[float], steps: float | None) -> tuple[int, float] | None:
    """The first index from which windows accept nothing, and the probability of this if each index
    accepted as often as all earlier ones together. `rates` are shares of the steps by index."""
    steps = steps or UNKNOWN_STEPS
    for index in range(1, len(rates)):
        reached = rates[index - 1]
        earlier = sum(rates[:index]) / (1 + sum(rates[: index - 1]))
        chance = (1 - min(earlier, 1.0)) ** (steps * reached)
        if earlier >= ALIVE and rates[index] <= DEAD * reached and chance < CHANCE:
            return index, chance
    return None
