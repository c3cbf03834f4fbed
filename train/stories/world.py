"""A little world that keeps track of who is where and who has what; the stories may only tell what it allows."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from train.stories import words


def with_article(words_: str) -> str:
    """ "an old fox", "an honest boy", "a kind girl"."""
    return f"{'an' if words_[0] in 'aeiou' or words_.startswith('honest') else 'a'} {words_}"


class ImpossibleError(Exception):
    """A plot tried to tell something that is not so: to give away what one does not have, say."""


@dataclass(eq=False)
class Thing:
    adjective: str
    noun: str
    holder: Character | None = None
    spot: str | None = None  # where it lies when nobody holds it, such as "under a fern"
    place: str | None = None

    @property
    def the(self) -> str:
        return f"the {self.adjective} {self.noun}"

    @property
    def a(self) -> str:
        return with_article(f"{self.adjective} {self.noun}")

    @property
    def short(self) -> str:
        return f"the {self.noun}"


@dataclass(eq=False)
class Character:
    name: str  # "Lily", or "the fox"
    kind: str  # "girl", "boy", "fox", …
    he: str  # "he" or "she"
    trait: str
    home: str
    skill: str
    place: str
    holds: list[Thing] = field(default_factory=list)
    mood: str = "content"

    @property
    def him(self) -> str:
        return "him" if self.he == "he" else "her"

    @property
    def his(self) -> str:
        return "his" if self.he == "he" else "her"

    @property
    def is_child(self) -> bool:
        return self.kind in ("girl", "boy")


class World:
    """The state that the plots change; every change is checked and written down in ``facts``."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.characters: list[Character] = []
        self.things: list[Thing] = []
        self.facts: list[tuple[str, ...]] = []
        self._free_animals = rng.sample(words.ANIMALS, len(words.ANIMALS))
        self._free_names = {"she": rng.sample(words.GIRLS, len(words.GIRLS)), "he": rng.sample(words.BOYS, len(words.BOYS))}
        self._free_grown_ups = rng.sample(words.GROWN_UPS, len(words.GROWN_UPS))
        self._free_things = rng.sample(sorted(words.THINGS), len(words.THINGS))
        self._free_places = rng.sample(sorted(words.PLACES), len(words.PLACES))

    # who and what there is

    def new_place(self) -> str:
        return self._free_places.pop()

    def child(self, place: str, trait: str | None = None) -> Character:
        he = self.rng.choice(("he", "she"))
        home = self.rng.choice(("cottage", "house", "hut", "little house", "cabin", "red house"))
        name, kind = self._free_names[he].pop(), "boy" if he == "he" else "girl"
        return self._add(Character(name, kind, he, trait or self.rng.choice(words.GOOD), home, self.rng.choice(words.SKILLS), place))

    def animal(self, place: str, trait: str | None = None, skill: str | None = None) -> Character:
        index = next((i for i, entry in enumerate(self._free_animals) if skill in (None, entry[2])), 0)
        kind, home, talent = self._free_animals.pop(index)
        he = self.rng.choice(("he", "she"))
        name = f"the {kind}"
        return self._add(Character(name, kind, he, trait or self.rng.choice(words.GOOD), home, talent, place))

    def grown_up(self, place: str, trait: str | None = None) -> Character:
        name, he = self._free_grown_ups.pop()
        kind = name.removeprefix("the ")
        return self._add(Character(name, kind, he, trait or self.rng.choice(words.GOOD), "house", "giving advice", place))

    def anyone(self, place: str, trait: str | None = None) -> Character:
        make = self.rng.choices((self.child, self.animal, self.grown_up), (5, 4, 2))[0]
        return make(place, trait)

    def hero(self, place: str, trait: str | None = None) -> Character:
        make = self.rng.choices((self.child, self.animal), (3, 2))[0]
        return make(place, trait)

    def thing(self, holder: Character | None = None, noun: str | None = None) -> Thing:
        noun = noun or self._free_things.pop()
        if noun in self._free_things:
            self._free_things.remove(noun)
        thing = Thing(self.rng.choice(words.THINGS[noun]), noun)
        self.things.append(thing)
        if holder is not None:
            self._put(thing, holder)
            self.facts.append(("has", holder.name, thing.the))
        return thing

    # what may happen

    def go(self, character: Character, place: str) -> None:
        character.place = place
        self.facts.append(("goes", character.name, place))

    def give(self, thing: Thing, giver: Character, taker: Character) -> None:
        self.require(thing.holder is giver, f"{giver.name} does not have {thing.the}")
        self.require(giver.place == taker.place, f"{giver.name} and {taker.name} are not together")
        self._put(thing, taker)
        self.facts.append(("gives", giver.name, thing.the, taker.name))

    def lose(self, thing: Thing, loser: Character, place: str) -> None:
        self.require(thing.holder is loser, f"{loser.name} does not have {thing.the}")
        loser.holds.remove(thing)
        thing.holder, thing.place = None, place
        thing.spot = self.rng.choice(words.HIDING[place])
        self.facts.append(("loses", loser.name, thing.the, place))

    def hide(self, thing: Thing, place: str) -> None:
        self.require(thing.holder is None, f"{thing.the} is in someone's hands")
        thing.place, thing.spot = place, self.rng.choice(words.HIDING[place])

    def find(self, thing: Thing, finder: Character) -> None:
        self.require(thing.holder is None, f"{thing.the} is not lost")
        self.require(finder.place == thing.place, f"{finder.name} is not where {thing.the} lies")
        self._put(thing, finder)
        self.facts.append(("finds", finder.name, thing.the))

    def require(self, so: bool, otherwise: str) -> None:
        if not so:
            raise ImpossibleError(otherwise)

    def _put(self, thing: Thing, holder: Character) -> None:
        if thing.holder is not None:
            thing.holder.holds.remove(thing)
        thing.holder, thing.place, thing.spot = holder, None, None
        holder.holds.append(thing)

    def _add(self, character: Character) -> Character:
        self.characters.append(character)
        return character
