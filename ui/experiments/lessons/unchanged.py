"""Lesson 4: one token drawn many times with the real decoder, at a position where a third of the draws are resampled."""

from collections.abc import Iterator
from dataclasses import replace

from pydantic import TypeAdapter

from naive_speculate.events import TokenProb
from ui.experiments.lessons.find_examples import THIRD, SamplingPosition, joined, resampled_share, sampling_position
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, View, end_of, showing, spoken
from ui.experiments.lossless import OTHERS, TOP_K, Census, conclusion, convergence, draw, shares
from ui.labels import number, percent

DRAWS = 1500
TOKENS = 60
TRIES = 12
K = 4
CENSUS = TypeAdapter(Census)  # reads and writes its JSON


def measure(trial: Trial) -> Iterator[Progress]:
    yield Progress("Searching for a position where the two models disagree moderately …")
    fork = find_position(trial)
    if trial.cancel.is_set():
        return
    if fork is None:
        yield Progress("The target never had more than two likely tokens. Try another prompt.")
        return
    settings = replace(trial.settings, temperature=1.0)
    served = trial.catalog.of(trial.settings.pair)
    request = served.suited(replace(settings.request(), prompt=fork.token_ids, chat=False, drafter=trial.drafter))
    census = None
    for census in draw(served.engine, request, DRAWS, trial.cancel):
        yield Progress(f"{census.draws:,} of {DRAWS:,} drawn …", _data(trial, fork, census))
    if census is not None:
        yield Progress(conclusion(census), _data(trial, fork, census))


def find_position(trial: Trial) -> SamplingPosition | None:
    """The first position after the prompt where about a third of the draws are resampled, else the closest."""
    found: list[SamplingPosition] = []
    for seed in trial.seeds(TRIES):
        position = sampling_position(trial.sampled(seed, num_draft_tokens=K, top_k=TOP_K, max_tokens=TOKENS))
        found += [position] if position else []
        if trial.cancel.is_set() or (position and position.teaches):
            break
    return min(found, key=lambda position: abs(position.share - THIRD), default=None)


def _data(trial: Trial, fork: SamplingPosition, census: Census) -> Data:
    # The share is not the run's: a head drafts a window's first token with another distribution than a later one.
    share = resampled_share(census.target, [TokenProb(token, "", prob) for token, prob in census.draft.items()])
    before = end_of(joined(trial.settings.prompt, fork.before))
    return {"before": before, "share": share, **CENSUS.dump_python(census, mode="json")}


def words(data: Data) -> dict[str, str]:
    census = CENSUS.validate_python(data)
    most, _ = _most_overrated(census)
    q = census.draft.get(most.token_id, 0.0)
    return {
        "before": data["before"].replace("\n", " "),
        "overrated": spoken(most.text),
        "overrates": _overrates(census),
        "p": percent(most.prob),
        "q": percent(q),
        "product": percent(most.prob * q),
        "share": percent(data["share"]),
        "draws": f"{census.draws:,}",
        "distance": number(census.distance, 2),
        "chance": number(census.by_chance(census.draws), 2),
        "blind": number(census.draft_distance, 2),
    }


def _most_overrated(census: Census) -> tuple[TokenProb, float]:
    """The token of the target's list with the largest q − p, and that difference."""
    excess = [(entry, census.draft.get(entry.token_id, 0.0) - entry.prob) for entry in census.target]
    return max(excess, key=lambda pair: pair[1])


def _overrates(census: Census) -> str:
    """The tokens that the draft overrates most, in sentences about the whole distribution."""
    most, excess = _most_overrated(census)
    (q, p), one = census.others, f"“{spoken(most.text)}”"
    own = f"most: q = {percent(census.draft.get(most.token_id, 0.0))}, but p = {percent(most.prob)}."
    if not q and not p:
        return f"The draft overrates {one} {own}"
    rest = f"“{OTHERS}” is every token outside the target's {len(census.target)} most probable, together: "
    rest += f"q = {percent(q)}, p = {percent(p)}."
    if q - p <= excess:
        return f"{rest} The draft overrates {one} {own}"
    return f"{rest} The draft overrates these most. Of the tokens with a bar of their own it overrates {one} {own}"


def views(data: Data) -> list[View]:
    census = CENSUS.validate_python(data)
    whole = shares(census)
    marks = ("target, p", "draft, q")
    rest = f"; {OTHERS}: the rest of the vocabulary" if any(census.others) else ""
    return [
        showing(whole, *marks, takeaway=f"Two models, one position: what each expects next{rest}"),
        showing(whole, *marks, takeaway="The probabilities of the next token under each model"),
        showing(whole, *marks, "accepted", lit=["accepted", "target, p"], takeaway="Accepted: the smaller of p and q"),
        showing(whole, lit=["resampled", "target, p"], takeaway="Accepted and resampled together: p"),
        {"figure": convergence(census, DRAWS)},
    ]


NOTE = "Searches for such a position after your prompt, and draws there; the chart updates meanwhile."
CHART = "The next token, counted"
LESSON = Lesson(4, f"Draw {DRAWS:,} tokens", NOTE, measure, words, lambda _: [1, 1], views, chart=CHART)
