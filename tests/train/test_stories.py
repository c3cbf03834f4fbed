"""The stories vary, repeat for a seed, and tell nothing that their world does not allow."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from train.stories import PLOTS, tell, tell_many
from train.stories.narrator import Narrator
from train.stories.plots_knowing import a_letter_comes
from train.stories.scenes import Telling
from train.stories.world import ImpossibleError, World


def test_a_seed_gives_one_text_and_few_are_told_twice() -> None:
    assert tell(3) == tell(3)
    texts = [tell(seed) for seed in range(5000)]
    assert len(set(texts)) > 4900


def test_tell_many_writes_about_as_much_as_asked() -> None:
    written = sum(len(story) for story in tell_many(1, 20_000))
    assert 20_000 <= written < 25_000


@pytest.mark.parametrize("plot", [plot for plot in PLOTS if plot is not a_letter_comes], ids=lambda plot: plot.__name__)
def test_each_plot_is_clean_prose_with_paragraphs(plot: Callable[[Telling], str]) -> None:
    for seed in range(60):
        text = plot(Telling.begin(random.Random(seed)))
        paragraphs = text.split("\n\n")
        assert len(paragraphs) >= 3
        assert not re.search(r"[{}]|  | [,.;]|\.\.|None|True|False", text), text
        assert text.count('"') % 2 == 0, text
        for paragraph in paragraphs:
            assert re.match(r'"?[A-Z]', paragraph), paragraph
            assert paragraph.endswith((".", "!", "?", '"')), paragraph


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.__name__)
def test_what_a_plot_does_can_be_replayed_without_contradiction(plot: Callable[[Telling], str]) -> None:
    """Nobody gives what another holds, and nobody finds what is not lost: read from the facts alone."""
    for seed in range(60):
        telling = Telling.begin(random.Random(seed))
        plot(telling)
        holders: dict[str, str | None] = {}
        for kind, who, what, *rest in telling.world.facts:
            if kind == "has":
                holders[what] = who
            elif kind == "gives":
                assert holders.get(what, who) == who
                holders[what] = rest[0]
            elif kind == "loses":
                assert holders[what] == who
                holders[what] = None
            elif kind == "finds":
                assert holders.get(what) is None
                holders[what] = who
        for thing in telling.world.things:
            assert sum(thing in person.holds for person in telling.world.characters) == (thing.holder is not None)


def test_the_world_refuses_what_cannot_be() -> None:
    world = World(random.Random(1))
    place = world.new_place()
    anna, tom = world.child(place), world.child(place)
    ball = world.thing(anna)
    with pytest.raises(ImpossibleError, match="does not have"):
        world.give(ball, tom, anna)
    with pytest.raises(ImpossibleError, match="is not lost"):
        world.find(ball, tom)
    world.go(tom, world.new_place())
    with pytest.raises(ImpossibleError, match="not together"):
        world.give(ball, anna, tom)


def test_a_pronoun_is_used_only_where_it_is_clear() -> None:
    world = World(random.Random(2))
    place = world.new_place()
    people = [world.child(place) for _ in range(6)]
    same = [person for person in people if person.he == people[0].he][:2]
    assert len(same) == 2
    for seed in range(50):
        narrator = Narrator(random.Random(seed))
        narrator.say("{A} saw {b}.", a=same[0], b=same[1])
        narrator.say("{A} smiled.", a=same[0])
        assert narrator.text().endswith(f"{same[0].name} smiled.")
