"""A subject is a table of true facts with the ways to ask for them and to tell them; the files beside this one hold them."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

from train.stories.phrases import Phrases, capital
from train.stories.slots import split


@dataclass(frozen=True)
class Ask:
    """One direction to ask in; all are templates over the subject's columns."""

    question: str  # "What is the capital of {country}?"
    indirect: str  # "what the capital of {country} is", as in "She asked …"
    short: str  # "{capital}"
    tells: Sequence[str] = ()  # clauses that answer just this, where not all of the subject's do


@dataclass(frozen=True)
class Fact:
    """A row of a subject, put into words."""

    ask: str  # the question as it stands behind a name: "what is the capital of France?"
    indirect: str  # as in "She asked …": "what the capital of France is"
    short: str  # the bare answer, without a full stop
    clause: str  # the whole truth as it stands behind "that": "the capital of France is Paris"

    @property
    def question(self) -> str:
        return capital(self.ask)

    def in_speech(self) -> Fact:
        """With single quotation marks, to stand between double ones."""
        return replace(self, **{part.name: getattr(self, part.name).replace('"', "'") for part in fields(self)})

    @property
    def sentence(self) -> str:
        return f"{capital(self.clause)}."


@dataclass(frozen=True)
class Subject:
    """``table`` has one row a line (or between semicolons), its columns parted by "=". ``tells`` are clauses without a full
    stop. ``check`` is a yes-or-no question about a row; it is given only where a value of another row is surely wrong.
    """

    name: str
    columns: str
    table: str
    asks: Sequence[Ask]
    tells: Sequence[str]
    check: str = ""

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        lines = split(self.table.replace("\n", ";"))
        return [dict(zip(self.columns.split(), map(str.strip, line.split("=")), strict=True)) for line in lines]

    def row(self, rng: random.Random) -> dict[str, str]:
        return rng.choice(self.rows)

    def fact(self, rng: random.Random, row: dict[str, str] | None = None) -> Fact:
        row = row or self.row(rng)
        words = Phrases(rng)
        ask = rng.choice(self.asks)
        return Fact(
            words(ask.question, **row),
            words(ask.indirect, **row),
            words(ask.short, **row),
            words(rng.choice(ask.tells or self.tells), **row),
        )

    def facts(self, rng: random.Random, count: int) -> list[Fact]:
        """Different rows, put into words; at most as many as there are."""
        return [self.fact(rng, row) for row in rng.sample(self.rows, min(count, len(self.rows)))]

    def doubt(self, rng: random.Random) -> tuple[str, bool, str]:
        """A yes-or-no question, whether the answer is yes, and the truth as a sentence."""
        row = self.row(rng)
        last = self.columns.split()[-1]
        wrong = rng.choice(self.rows)[last]
        words = Phrases(rng)
        truth = capital(words(rng.choice(self.tells), **row)) + "."
        if rng.random() < 0.5 or wrong == row[last]:
            return capital(words(self.check, **row)), True, truth
        return capital(words(self.check, **{**row, last: wrong})), False, truth


def _read(name: str) -> list[Subject]:
    subjects = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))["subject"]
    return [Subject(**given | {"asks": [Ask(*parts) for parts in given["asks"]]}) for given in subjects]


SUBJECTS = {subject.name: subject for name in ("places", "animals", "things", "days") for subject in _read(name)}
"""By name."""
