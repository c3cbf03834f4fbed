"""`bench --suite FILE`: plain decoding and drafters on questions by category, in the format of
Spec-Bench.

Spec-Bench: Xia et al. 2024 (arXiv 2401.07851), github.com/hemingkx/Spec-Bench. Each question is
decoded plainly and with each drafter; the order rotates with every question. Speeds include the
prompt; the ratio "after the prompt" leaves it out on both sides.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.request import Request
from naive_speculate.tools.bench.measure import (
    Decoded,
    Transformers,
    Way,
    decode_all,
    lines_of,
    our_way,
)

NONE = "none"  # the drafter name of plain decoding, which is always measured
_LOOKUP, _ASSISTED = 10, 5  # transformers' windows: its documentation's for prompt lookup


class Question(NamedTuple):
    """The first turn of a question, its category, and its line in the file."""

    category: str
    text: str
    line: int


def read_suite(path: Path, limit: int | None = None) -> list[Question]:
    """At most `limit` questions of each category. Raises `ValueError`, naming the line that is
    none, or the file if it has none; `OSError` if it cannot be read."""
    questions: list[Question] = []
    counts: Counter[str] = Counter()
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"--suite {path}, line {number}"
        try:
            data = json.loads(line)
        except ValueError as error:  # also text that is not UTF-8
            raise ValueError(f"{where}: not JSON: {error}") from None
        data = data if isinstance(data, dict) else {}
        category, turns = data.get("category"), data.get("turns")
        if not isinstance(category, str) or not category:
            raise ValueError(f'{where}: "category" must be a string, got {category!r:.80}')
        first = turns[0] if isinstance(turns, list) and turns else None
        if not isinstance(first, str) or not first:
            what = f"a list that begins with a string, got {turns!r:.80}"
            raise ValueError(f'{where}: "turns" must be {what}')
        counts[category] += 1
        if limit is None or counts[category] <= limit:
            questions.append(Question(category, first, number))
    if not questions:
        raise ValueError(f"--suite {path}: the file has no questions")
    return questions


def drafters_of(text: str | None) -> list[str] | None:
    """Comma-separated, with a tree or `argmax` after a colon if wanted. Raises `ValueError` if one
    is not registered."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name != NONE and name.partition(":")[0] not in DRAFTERS:
            raise ValueError(
                f"--drafters must be of {', '.join([*DRAFTERS, NONE])}, got {name!r:.80}"
            )
    return [name for name in dict.fromkeys(names) if name != NONE]


def encode(
    decoder: SpeculativeDecoder, path: Path, questions: Sequence[Question]
) -> list[list[int]]:
    """Token ids, in the chat template where there is one. Raises `ValueError`, naming the line of a
    question that the pair cannot decode."""
    prompts, chat = [], decoder.admission.has_chat_template
    for question in questions:
        try:
            run = decoder.prepare(Request(question.text, num_draft_tokens=0, chat=chat))
        except ValueError as error:
            raise ValueError(f"--suite {path}, line {question.line}: {error}") from None
        prompts.append(run.rows[0].prompt_token_ids)
    return prompts


def ways_of(
    decoder: SpeculativeDecoder,
    drafters: Sequence[str] | None,
    windows: Sequence[int | str],
    params: SamplingParams,
    peer: Transformers | None,
) -> list[Way]:
    """Plain decoding; the drafters, by default all that the pair supports, with each window; with a
    peer transformers' plain generation, prompt lookup and, with a draft model, assisted generation.
    Raises `ValueError` if the pair lacks what a drafter needs, or a number is out of range."""
    ways = [replace(our_way(decoder, 0, params), name=NONE)]
    if drafters is None:
        drafters = [name for name, kind in DRAFTERS.items() if kind.obstacle(decoder.pair) is None]
    for name in drafters:
        drafter, _, how = name.partition(":")
        tree = None if how == "argmax" else how or None
        options: dict[str, Any] = {"tree": tree} if how != "argmax" else {"draft_sampling": how}
        for k in windows if not tree else [1]:  # a tree is drafted instead of a window
            decoder.prepare(Request([0], params, num_draft_tokens=k, drafter=drafter, **options))
            shown = name if tree or len(windows) == 1 else f"{name}, k = {k}"
            ways.append(replace(our_way(decoder, k, params, drafter, **options), name=shown))
    if peer is not None:
        theirs = partial(peer.way, temperature=params.temperature)
        ways += [theirs(0), theirs(_LOOKUP, lookup=True)]
        ways += [theirs(_ASSISTED)] if peer.draft is not None else []
    return ways


def figures(
    ways: Sequence[Way],
    questions: Sequence[Question],
    answers: Sequence[list[Decoded]],
    temperature: float,
) -> dict[str, Any]:
    """By category and way, and overall, of the first questions, whose `answers` have a run per
    way."""

    def lines(some: Sequence[list[Decoded]]) -> dict[str, dict[str, Any]]:
        unknown = {} if temperature == 0 else {"same_as_plain": None}
        return {line.name: vars(line) | unknown for line in lines_of(ways, some)}

    by_category: dict[str, list[list[Decoded]]] = {}
    for question, runs in zip(questions, answers, strict=False):
        by_category.setdefault(question.category, []).append(runs)
    return {
        "categories": {name: lines(some) for name, some in by_category.items()},
        "overall": lines(answers),
    }


def answers_of(
    ways: Sequence[Way], prompts: Sequence[list[int]], tick: Callable[[int], None]
) -> tuple[list[list[Decoded]], bool]:
    """The runs of each prompt, and whether Ctrl-C ended them after the last complete question; the
    first is decoded before, to warm up."""
    answers: list[list[Decoded]] = []
    try:
        for way in ways:
            way.decode(prompts[0], 0)
        for runs in decode_all(ways, prompts, tick):
            answers.append(runs)
    except KeyboardInterrupt:
        if not answers:
            raise
        return answers, True
    return answers, False
