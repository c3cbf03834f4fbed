"""Pieces that the plots share: openings, walks, meetings, talk, thanks and endings."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from train.stories import words
from train.stories.narrator import Narrator
from train.stories.phrases import Phrases
from train.stories.world import Character, Thing, World, with_article


@dataclass
class Telling:
    """What a plot works with: the random source, the world, the narrator, and phrases for what needs no world."""

    rng: random.Random
    world: World
    narrator: Narrator
    phrases: Phrases

    @staticmethod
    def begin(rng: random.Random) -> Telling:
        return Telling(rng, World(rng), Narrator(rng), Phrases(rng))

    def pick(self, options: tuple[str, ...]) -> str:
        return self.rng.choice(options)

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance


Kind = Callable[[Telling], str]
"""What makes one text."""


def near(place: str) -> str:
    """ "in the wood" for "the wood"."""
    return words.PLACES[place][0]


def introduce(t: Telling, hero: Character) -> None:
    """The first sentences: who the story is about, where, and what the day is like."""
    n, place = t.narrator, hero.place
    where, weather = near(place), t.pick(words.WEATHER)
    indefinite = with_article(f"{hero.trait} {hero.kind}")
    if hero.is_child:
        n.say(
            f"Once upon a time there was {indefinite} named {{a!}}, who lived in a {hero.home} near {place}.",
            f"There was once {indefinite} whose name was {{a!}}. {{A}} lived in a {hero.home} not far from {place}.",
            f"{{a!}} was {indefinite} who lived with {hero.his} mother in a {hero.home} near {place}.",
            f"Long ago, near {place}, there lived {indefinite} called {{a!}}.",
            f"In a {hero.home} near {place} lived {indefinite}. {hero.his} name was {{a!}}.",
            f"One day {indefinite} named {{a!}} was playing {where}.",
            a=hero,
        )
    elif hero.home == "house":
        n.say(
            f"Once upon a time there was {indefinite} who lived near {place}.",
            f"There was once {indefinite}, and everybody near {place} knew {hero.him}.",
            f"Near {place} there lived {indefinite}.", a=hero,
        )
    else:
        n.say(
            f"Once upon a time {indefinite} had {hero.his} home {where}.",
            f"There was once {indefinite} who lived {where}.",
            f"{where[0].upper() + where[1:]} there lived {indefinite}.",
            f"{indefinite} once lived in {with_article(hero.home)}. {hero.he} liked to be {where}.",
            a=hero,
        )
    if t.maybe(0.4):
        first, second = t.rng.sample(words.PLACES[place][1:], 2)
        n.say(
            f"{{A}} liked to look at {first} and {second}.", f"There one could see {first}, and {second}.",
            f"{{A}} knew {first} there, and {second}, as well as {hero.his} own bed.", f"From the door one saw {first} and {second}.",
            a=hero,
        )
    if t.maybe(0.4):
        n.say(
            f"{{A}} was {hero.trait}, and {hero.he} was good at {hero.skill}.",
            f"{{A}} was good at {hero.skill}, and was glad of it." if t.maybe(0.5) else f"Nobody was better than {{a}} at {hero.skill}.",
            a=hero,
        )
    n.say(f"One morning {weather}.", f"It was {t.pick(('early', 'late', 'noon', 'nearly evening'))}, and {weather}.",
          f"On this day {weather}, and {{a}} was {t.pick(('happy', 'in good spirits', 'up early', 'out of doors'))}.", a=hero)


def walk(t: Telling, hero: Character, place: str) -> None:
    t.world.go(hero, place)
    sights = words.PLACES[place][1:]
    sight = t.pick(sights)
    t.narrator.say(
        f"So {{A}} went to {place}.", f"{{A}} set out for {place}, and soon {hero.he} saw {sight}.",
        f"{{A}} walked and walked until {hero.he} came to {place}.", f"Then {{A}} ran all the way to {place}.",
        f"It was not far to {place}, and {{a}} was there before long.", f"{{A}} took the road to {place}, past {sight}.",
        a=hero,
    )


def meet(t: Telling, hero: Character, other: Character) -> None:
    n = t.narrator
    where = near(hero.place)
    doing = t.pick(("sitting on a stone", "resting in the shade", "looking about", "singing a little song", "hard at work",
                    "eating breakfast", "coming slowly along the path", "gathering sticks"))
    if other.is_child:
        n.say(f"{where} {{a}} met a {other.kind} named {{b!}}, who was {doing}.", f"There {{a}} saw a {other.kind}, {doing}. {other.his} name was {{b!}}.", a=hero, b=other)
    elif other.name[4:] == other.kind:
        somebody = with_article(other.kind)
        n.say(f"There {{a}} met {somebody}, who was {doing}.", f"{where} {{a}} saw {somebody}, {doing}.",
              f"Who should be there but {somebody}, {doing}!", a=hero, b=other)
    n.say(
        '"Good morning, {bName}," said {a}.' if not other.is_child else '"Good morning, {b!}," said {a}.',
        '"Good day to you," said {a} politely.', '"Who are you?" asked {b}. "I am {aName}," said {a}.',
        '"Where are you going?" asked {b}.', "{b!} looked up and smiled.", '"How do you do?" said {b}.', a=hero, b=other,
    )


def thank(t: Telling, who: Character, whom: Character) -> None:
    t.narrator.say(
        '"Thank you," said {a}. "You are very {good}."'.replace("{good}", t.pick(("kind", "good", "clever"))),
        '"Thank you, thank you!" cried {a}.', "{a!} thanked {b} with all {ahis} heart.",
        '"How can I ever thank you?" said {a}. "It was nothing," said {b}.',
        '"I shall not forget this," said {a}.', '{a!} was so glad that {ahe} danced. "Thank you, {bName}," {ahe} said.',
        a=who, b=whom,
    )


def feel(t: Telling, who: Character, mood: str) -> None:
    who.mood = mood
    options = {
        "sad": ("{A} sat down and cried.", "{A} was very sad.", "A tear ran down {ahis} nose.", "{A} did not know what to do.", "{A} hung {ahis} head and sighed."),
        "happy": ("{A} was very happy.", "{A} laughed for joy.", "{A} clapped and jumped about.", "{A} had never been so happy.", "{A} smiled from ear to ear."),
        "afraid": ("{A} was afraid.", "{A} began to tremble.", "{ahis} heart beat fast.", "{A} did not dare to move.", "{A} stood quite still and held {ahis} breath."),
        "angry": ("{A} was very angry.", "{A} stamped on the ground.", "{A} would not say a word.", "{A} turned away with a frown."),
        "ashamed": ("{A} was ashamed.", "{A} looked at the ground and said nothing.", "{A} felt hot with shame.", "{A} wished that {ahe} had not done it."),
        "tired": ("{A} was very tired.", "{A} could hardly stand.", "{A} sat down to rest.", "{A} yawned and rubbed {ahis} eyes."),
    }
    t.narrator.say(*options[mood], a=who)


def want(t: Telling, hero: Character, thing: Thing) -> None:
    t.narrator.say(
        f"{{A}} had {thing.a}, and {hero.he} loved it more than anything.", f"{hero.his} grandmother had given {{a}} {thing.a}.",
        f"{{A}} never went anywhere without {hero.his} {thing.adjective} {thing.noun}.", f"The best thing that {{a}} had was {thing.a}.",
        f"{{A}} owned only one fine thing, and that was {thing.a}.", a=hero,
    )


def hand_over(t: Telling, thing: Thing, giver: Character, taker: Character) -> None:
    t.world.give(thing, giver, taker)
    t.narrator.say(
        f"{{a!}} gave {thing.the} to {{b}}.", f"So {{a}} put {thing.the} before {{b}}.", f'"Take {thing.the}," said {{a}}, and {{b}} took it.',
        f"{{a!}} handed {{b}} {thing.the}.", f'"Here is {thing.the}," said {{a}}. "It is yours now."', a=giver, b=taker,
    )


def home_again(t: Telling, hero: Character) -> None:
    t.narrator.say(
        "Then {A} went home to supper.", "That night {a} slept soundly.", "When the stars came out, {a} was at home again.",
        "{A} went home and told the whole story.", f"{{A}} had {t.pick(words.FOODS)} for supper, and it tasted better than ever.",
        "And so {a} came safely home.", "The moon was up when {a} reached home.", a=hero,
    )


def part(t: Telling, hero: Character, friend: Character | None, *together: str) -> None:
    """The last paragraph: one of these sentences about both, or the way home, or neither."""
    t.narrator.paragraph()
    if friend is not None and t.maybe(0.5):
        t.narrator.say(*together, a=hero, b=friend)
    elif t.maybe(0.7):
        home_again(t, hero)


def finish(t: Telling, moral: str, hero: Character, friend: Character | None = None) -> str:
    n = t.narrator
    part(t, hero, friend, "From that day {a} and {b} were good friends.", "After that {a} and {b} were always together.",
         "{a!} and {b} often talked of that day.", "And {a} and {b} lived happily ever after.",
         "If they are not dead, {a} and {b} are friends still.")
    if t.maybe(0.65) or not n.paragraphs[-1]:
        saying = t.pick(words.MORALS[moral])
        low = saying[0].lower() + saying[1:]
        n.say(saying, f"And {{a}} never forgot that {low}",
              f'"{saying}" said {{a}}\'s mother.'.replace('."', ',"') if hero.is_child else saying, a=hero)
    return n.text()
