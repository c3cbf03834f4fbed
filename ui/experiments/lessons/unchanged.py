"""Lesson 4: one token drawn many times with the real decoder, at a position where a third of the
draws are resampled.

top_k equals the length of the lists of most probable tokens in events. So these lists are the
whole distribution, and everything here comes from events.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from pydantic import TypeAdapter

from naive_speculate.events import OUTPUT_KINDS, EventKind, TokenProb
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.serving import Engine, Request
from naive_speculate.serving.visit import Visit
from ui.charts.figures import (
    ACCEPTED,
    DRAFT,
    INK,
    RESAMPLED,
    TARGET,
    Figure,
    axis,
    bars,
    category_axis,
    figure,
    hatched,
    line,
)
from ui.experiments.lessons.find_examples import (
    THIRD,
    SamplingPosition,
    distance,
    joined,
    probs,
    sampling_position,
)
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, View, showing, spoken
from ui.labels import count, end_of, label, number, percent

DRAWS = 1500
TOKENS = 60
TRIES = 12
K = 4
TOP_K = 8
OTHERS = "all others"  # the bar of all other tokens
LEAST_OTHERS = 0.0005  # their least probability to draw it
LOOK: dict[str, Any] = {"height": 298, "margin": {"l": 8, "r": 12, "t": 50, "b": 8}}


@dataclass
class Census:
    """How often each token was drawn, and its probabilities."""

    target: Sequence[TokenProb]  # the target's whole distribution, most probable first
    draft: dict[int, float]  # the draft's probabilities, by token
    # kept, replaced: how often each token was an accepted draft token, and how often it was
    # resampled
    kept: Counter[int] = field(default_factory=Counter)
    replaced: Counter[int] = field(default_factory=Counter)
    # number of draws and distance between counts and target at that point, one pair per batch
    distances: list[tuple[int, float]] = field(default_factory=list)

    @property
    def draws(self) -> int:
        return self.kept.total() + self.replaced.total()

    @property
    def others(self) -> tuple[float, float]:
        """The draft's and the target's total probability outside `target`. If `target` is its
        top-k, only the draft has any."""
        drafted = (self.draft.get(entry.token_id, 0.0) for entry in self.target)
        expected = (entry.prob for entry in self.target)
        return rest_of(drafted), rest_of(expected)

    @property
    def distance(self) -> float:
        """Total variation distance between the counted shares and the target's probabilities."""
        return distance(
            probs(self.target),
            {token: n / self.draws for token, n in (self.kept + self.replaced).items()},
        )

    @property
    def draft_distance(self) -> float:
        """Total variation distance between draft and target: the limit if every draft token were
        accepted."""
        return distance(probs(self.target), self.draft)

    def by_chance(self, draws: int) -> float:
        """The mean distance of so many draws from the target itself."""
        return sum(
            math.sqrt(max(0.0, e.prob * (1 - e.prob)) / (2 * math.pi * draws)) for e in self.target
        )


def rest_of(probs: Iterable[float]) -> float:
    """1 minus the sum of these probabilities; 0 if it is too small to draw."""
    rest = 1 - sum(probs)
    return rest if rest >= LEAST_OTHERS else 0.0


def censuses(engine: Engine, request: Request, draws: int) -> Iterator[Census]:
    """Draw the token after the prompt again and again, and yield the census after every batch.

    There is one draft token per step, so the first token is either accepted or resampled. Only
    the request's drafter, temperature (above 0), seed and word filter are used. Raises
    ValueError if the prompt or the temperature is invalid.
    """
    temperature, seed = request.params.temperature, request.params.seed or 0
    if temperature <= 0:
        raise ValueError("temperature is 0: there is only one token to draw")
    words = request.params.filter_words
    params = SamplingParams(
        temperature=temperature,
        top_k=TOP_K,
        max_tokens=2,
        ignore_eos=True,
        seed=seed,
        filter_words=words,
    )
    one = replace(
        request, params=params, num_draft_tokens=1, verify_strategy="speculative_sampling"
    )
    census = _expected(engine, one)
    load = engine.load()
    at_once = load.capacity // max(1, load.replicas)  # one replica decodes a whole request
    size = 10
    while census.draws < draws:
        chosen = replace(
            params, n=max(1, min(size, at_once, draws - census.draws)), seed=seed + census.draws
        )
        counted: set[int] = set()
        run = Visit(replace(one, params=chosen, detail="none"))
        for event in chain.from_iterable(run.submit(engine)):
            if (
                event.kind in OUTPUT_KINDS
                and event.row not in counted
                and event.token_id is not None
            ):
                counted.add(event.row)
                (census.kept if event.kind == EventKind.ACCEPTED else census.replaced)[
                    event.token_id
                ] += 1
        census.distances.append((census.draws, census.distance))
        size *= 2
        yield census


def _expected(engine: Engine, request: Request) -> Census:
    """A census without draws: both distributions of the first token, from one run."""
    run = Visit(replace(request, detail="full"))
    for event in list(chain.from_iterable(run.submit(engine))):
        if event.kind == EventKind.PROPOSED and event.target_top and event.draft_top:
            return Census(event.target_top, probs(event.draft_top))
    raise ValueError("prompt leaves no room for a draft token")


def shares(census: Census) -> Figure:
    """Counted shares, stacked from accepted and resampled tokens, with p and q as marks. The
    last bar is all tokens outside the target's list, so that p and q both sum to 1."""
    tokens, draws, (q, p) = census.target, census.draws, census.others
    kept, replaced = (
        [counted[t.token_id] / draws for t in tokens] for counted in (census.kept, census.replaced)
    )
    drafted, expected = (
        [census.draft.get(t.token_id, 0.0) for t in tokens],
        [t.prob for t in tokens],
    )
    names = [label(t.text, 10) for t in tokens]
    if p or q:
        names.append(OTHERS)
        drafted, expected = [*drafted, q], [*expected, p]
        kept.append(max(0.0, census.kept.total() / draws - sum(kept)))
        replaced.append(max(0.0, census.replaced.total() / draws - sum(replaced)))
    x = list(range(len(names)))
    top = max(*drafted, *expected, *(a + b for a, b in zip(kept, replaced, strict=True)))

    def marks(
        name: str, values: list[float], color: str, symbol: str, size: int, width: int
    ) -> Figure:
        marker = {
            "color": color,
            "symbol": symbol,
            "size": size,
            "line": {"color": color, "width": width},
        }
        return line(name, x, values, color, f"{name}: %{{y:.4f}}", mode="markers", marker=marker)

    return figure(
        [
            bars("accepted", x, kept, ACCEPTED, "accepted: %{y:.4f}"),
            bars("resampled", x, replaced, RESAMPLED, "resampled: %{y:.4f}", marker=hatched("/")),
            marks("target, p", expected, TARGET, "line-ew-open", 26, 4),
            marks("draft, q", drafted, DRAFT, "circle-open", 9, 2),
        ],
        takeaway=f"{count(census.draws, 'draw')}, top-k {TOP_K}",
        x=category_axis(names, tickangle=-45),
        y=axis("probability", 0, min(1.02, math.ceil(top * 11) / 10), tickformat=".0%"),
        barmode="stack",
        bargap=0.35,
        **LOOK,
    )


def convergence(census: Census, draws: int) -> Figure:
    """The distance between counts and target against the number of draws, on logarithmic axes."""
    sizes = [size for size, _ in census.distances]
    ends = [10, max(draws, 20)]
    blind = census.draft_distance
    lowest = census.by_chance(ends[1]) / 6
    measured = [max(lowest, distance) for _, distance in census.distances]
    fair = [census.by_chance(size) for size in ends]
    hover, ticks = "%{x} draws: %{y:.4f}", [1, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001]
    return figure(
        [
            line(
                "measured",
                sizes,
                measured,
                ACCEPTED,
                hover,
                mode="lines+markers",
                marker={"size": 7},
            ),
            line("draws from the target", ends, fair, INK, hover, dash="dash"),
            line("every draft token accepted", ends, [blind, blind], DRAFT, "%{y:.4f}", dash="dot"),
        ],
        takeaway=f"Distance to the target: {number(census.distance, 2)}",
        x=axis("draws", 0.95, math.log10(ends[1]) + 0.05, type="log", dtick=1),
        y=axis("distance to the target", math.log10(lowest), 0, type="log", tickvals=ticks),
        **LOOK,
    )


CENSUS = TypeAdapter(Census)  # reads and writes its JSON


def measure(trial: Trial) -> Iterator[Progress]:
    yield Progress("Searching for a position where the two models disagree moderately …")
    fork = find_position(trial)
    if fork is None:
        yield Progress("The target never had more than two likely tokens. Try another prompt.")
        return
    settings = replace(trial.settings, temperature=1.0)
    served = trial.catalog.of(settings.pair)
    request = served.suited(
        replace(settings.request(), prompt=fork.token_ids, chat=False, drafter=trial.drafter)
    )
    for census in censuses(served.engine, request, DRAWS):
        done = census.draws >= DRAWS
        yield Progress(
            "Done." if done else f"{census.draws:,} of {DRAWS:,} drawn …",
            _data(trial, fork, census),
        )


def find_position(trial: Trial) -> SamplingPosition | None:
    """The first position after the prompt where about a third of the draws are resampled, else
    the closest."""
    positions: list[SamplingPosition] = []
    for trace in trial.sampled(TRIES, num_draft_tokens=K, top_k=TOP_K, max_tokens=TOKENS):
        position = sampling_position(trace)
        positions += [position] if position else []
        if position and position.teaches:
            break
    return min(positions, key=lambda position: abs(position.share - THIRD), default=None)


def _data(trial: Trial, fork: SamplingPosition, census: Census) -> Data:
    return {
        "before": end_of(joined(trial.settings.prompt, fork.before)),
        **CENSUS.dump_python(census, mode="json"),
    }


def words(data: Data) -> dict[str, str]:
    census = CENSUS.validate_python(data)
    drafted, expected = census.others
    most = max(census.target, key=lambda entry: census.draft.get(entry.token_id, 0.0) - entry.prob)
    one, p, q = spoken(most.text), most.prob, census.draft.get(most.token_id, 0.0)
    overrates = (
        f"Of the tokens with a bar of their own, the draft overrates “{one}” most: q ="
        f" {percent(q)}, but p = {percent(p)}."
    )
    if drafted or expected:
        rest = (
            f"“{OTHERS}” is every token outside the target's {len(census.target)} most probable,"
            " together: "
        )
        overrates = f"{rest}q = {percent(drafted)}, p = {percent(expected)}. {overrates}"
    return {
        "before": data["before"].replace("\n", " "),
        "overrated": one,
        "overrates": overrates,
        "p": percent(p),
        "q": percent(q),
        "product": percent(p * q),
        # Not the run's: a head drafts a window's first token with another distribution than a later
        # one.
        "share": percent(census.draft_distance),
        "draws": f"{census.draws:,}",
        "distance": number(census.distance, 2),
        "chance": number(census.by_chance(census.draws), 2),
        "blind": number(census.draft_distance, 2),
    }


def views(data: Data) -> list[View]:
    census = CENSUS.validate_python(data)
    whole = shares(census)
    marks = ("target, p", "draft, q")
    rest = f"; {OTHERS}: the rest of the vocabulary" if any(census.others) else ""
    return [
        showing(whole, *marks, takeaway=f"Two models, one position: what each expects next{rest}"),
        showing(whole, *marks, takeaway="The probabilities of the next token under each model"),
        showing(
            whole,
            *marks,
            "accepted",
            lit=["accepted", "target, p"],
            takeaway="Accepted: the smaller of p and q",
        ),
        showing(whole, takeaway="Accepted and resampled together: p"),
        {"figure": convergence(census, DRAWS)},
    ]


LESSON = Lesson(4, measure, words, lambda _: [0, 1], views, numbers={"draws": f"{DRAWS:,}"})
