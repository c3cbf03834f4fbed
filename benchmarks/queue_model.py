"""A closed queue of visitors and replicas, solved exactly.

Each of N visitors thinks for an exponentially distributed time, then waits for a run. With n runs
in the system the replicas end `replicas * rate(n / replicas)` per second; the rate is constant
once all rows are taken. This is a birth-death chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Outlook:
    """Mean figures of the visitors."""

    per_second: float  # finished runs
    response: float  # seconds from the request to its end
    waiting: float  # share of runs that find no free row


def outlook(visitors: int, think: float, rates: Sequence[float], replicas: int) -> Outlook:
    """Solve the model. `think` is the mean of the seconds between an answer and the next request,
    `rates` are runs per second of one replica that decodes 1, 2, … rows together."""

    def rate(running: int) -> float:
        return replicas * float(np.interp(running / replicas, range(len(rates) + 1), [0.0, *rates]))

    def chances(population: int) -> list[float]:
        weights = [1.0]
        for running in range(1, population + 1):
            weights.append(weights[-1] * (population - running + 1) / think / rate(running))
        return [weight / sum(weights) for weight in weights]

    per_second = sum(
        chance * rate(running) for running, chance in enumerate(chances(visitors)) if running
    )
    # A new request sees the system without its own visitor (the arrival theorem).
    waiting = sum(chances(visitors - 1)[replicas * len(rates) :])
    return Outlook(per_second, visitors / per_second - think, waiting)
