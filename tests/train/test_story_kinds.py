"""The texts beside the tales: each kind is told, cleanly, in many ways, and says nothing that the tables do not."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable

import pytest

from naive_speculate.sampling.words import classroom_words
from train.stories import KINDS, PLOTS, kind_of, tell
from train.stories.facts import DOUBTED, EXPLANATIONS, SUBJECTS, SUMS, any_fact
from train.stories.facts.subject import Subject
from train.stories.phrases import Phrases, capital, tidy
from train.stories.scenes import Telling

CAPITALS, LEGS, YOUNG = (SUBJECTS[name] for name in ("capitals", "legs", "young"))

HOLES = re.compile(
    r"[{}\[\]|]|\S  |(?<!=)\s[,.;!?](?:\s|$)|(?<!\.)\.\.(?!\.)|[.!?],|None|\b[Aa] (?:apple|owl|old|orange|ant|egg|elm|oak)\b"
)
FUNCTIONS = [kind for kind, _ in KINDS]


def texts_of(kind: Callable[[Telling], str], count: int) -> list[str]:
    return [tidy(kind(Telling.begin(random.Random(seed)))) for seed in range(count)]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [tell(seed) for seed in range(5000)]


@pytest.mark.parametrize("kind", FUNCTIONS, ids=lambda kind: kind.__name__)
def test_each_kind_is_clean_and_varies(kind: Callable[[Telling], str]) -> None:
    told = texts_of(kind, 150)
    assert len(set(told)) > (15 if kind.__name__ in ("joke", "counting") else 60)
    for text in told:
        assert text == text.strip()
        assert text.count('"') % 2 == 0, text
        if kind.__name__ != "program" and "|" not in text:
            assert not HOLES.search(text), text


def test_about_half_of_all_characters_are_tales(texts: list[str]) -> None:
    tales = sum(len(text) for seed, text in enumerate(texts) if kind_of(random.Random(seed)) in PLOTS)
    assert 0.4 < tales / sum(map(len, texts)) < 0.6


def test_each_kind_is_told_now_and_then() -> None:
    told = Counter(kind_of(random.Random(seed)) for seed in range(5000))
    assert set(told) == {*PLOTS, *FUNCTIONS}
    assert min(told.values()) >= 3


def test_nothing_is_written_that_does_not_belong_into_a_classroom(texts: list[str]) -> None:
    assert classroom_words().find("\n".join(texts)) == []


def test_capitals_young_ones_and_legs_are_those_of_the_tables(texts: list[str]) -> None:
    together = "\n".join(texts)
    for subject, pattern in (
        (CAPITALS, r"[Tt]he capital (?:city )?of ((?:the )?[A-Z]\w+(?: [A-Z]\w+)*) is (?:called )?([A-Z]\w+(?: [A-Z]\w+)*)"),
        (YOUNG, r"\b[Aa] (?:young|baby) (\w+) is called an? (\w+)"),
        (LEGS, r"\b(?:[Aa]n?|[Tt]he) (\w+) has (\w+) legs"),
    ):
        known = {tuple(row.values()) for row in subject.rows}
        said = set(re.findall(pattern, together)) - {("chair", "four")}
        assert len(said) > 10
        assert said <= known


def test_sums_come_out_right(texts: list[str]) -> None:
    sums = re.findall(r"(\d+) ([-+x:]) (\d+) = (\d+)", "\n".join(texts))
    assert len(sums) > 50
    for a, sign, b, c in sums:
        worked_out = {"+": int(a) + int(b), "-": int(a) - int(b), "x": int(a) * int(b), ":": int(a) / int(b)}[sign]
        assert worked_out == int(c)


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=lambda subject: subject.name)
def test_a_subject_asks_and_tells_in_several_ways_and_each_telling_holds_the_answer(subject: Subject) -> None:
    rng = random.Random(1)
    for row in subject.rows:
        facts = [subject.fact(rng, row) for _ in range(30)]
        assert len({(fact.question, fact.sentence) for fact in facts}) >= 3
        for fact in facts:
            assert fact.question[0].isupper()
            assert fact.question.endswith("?")
            assert re.search(r'[\w"]\.$', fact.sentence)
            assert not HOLES.search(f"{fact.question} {fact.indirect} {fact.short} {fact.sentence}")


@pytest.mark.parametrize("subject", DOUBTED, ids=lambda subject: subject.name)
def test_yes_and_no_are_answered_as_the_table_has_it(subject: Subject) -> None:
    rng = random.Random(4)
    for _ in range(60):
        question, yes, _ = subject.doubt(rng)
        asked = {capital(Phrases(rng)(subject.check, **row)) for row in subject.rows}
        assert (question in asked) == yes


def test_explanations_and_sums_are_whole_sentences() -> None:
    rng = random.Random(2)
    for explanation in EXPLANATIONS:
        for _ in range(10):
            assert re.fullmatch(r"[A-Z].*\.", explanation.told(rng))
            assert explanation.fact(rng).question.endswith("?")
    for make in SUMS:
        for _ in range(30):
            assert re.fullmatch(r"[\"\dA-Z].*\.", make(rng).sentence)


def test_one_fact_is_asked_and_told_in_many_ways() -> None:
    france = next(row for row in CAPITALS.rows if row["country"] == "France")
    facts = [CAPITALS.fact(random.Random(seed), france) for seed in range(300)]
    assert len({fact.question for fact in facts}) >= 6
    assert len({fact.sentence for fact in facts}) >= 5


def test_a_fact_in_speech_has_no_double_quotation_marks() -> None:
    rng = random.Random(3)
    for _ in range(500):
        fact = any_fact(rng).in_speech()
        assert '"' not in fact.question + fact.indirect + fact.short + fact.sentence


def test_phrases_bind_numbered_slots_and_tagged_choices() -> None:
    for seed in range(50):
        phrases = Phrases(random.Random(seed))
        first, again, other = phrases("{animal1} {animal1} {animal2}").split(" ")
        assert first == again != other
        assert phrases("[a:one|two] [a:one|two]") in ("one one", "two two")
        assert phrases("{Name}")[0].isupper()
    assert Phrases(random.Random(1))("a {x}, a {y}", x="owl", y="fox") == "an owl, a fox"
    assert tidy('"It is so  ." said he , and left. ') == '"It is so," said he, and left.'
