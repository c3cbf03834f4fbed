"""Simple sums and comparisons, worked out and put into words."""

import random

from train.stories.facts.days import spelled
from train.stories.facts.subject import Fact
from train.stories.phrases import Phrases
from train.stories.slots import split

# smallest first
SIZES = ("an ant", "a bee", "a mouse", "a hedgehog", "a cat", "a sheep", "a cow", "an elephant", "a whale")
HEAVY = ("a feather", "a pencil", "an apple", "a book", "a chair", "a horse", "a ship")
SPEEDS = ("a snail", "a tortoise", "a hen", "a horse", "a train", "an aeroplane")
LONG = ("a second", "a minute", "an hour", "a day", "a week", "a month", "a year", "a century")
TALL = ("a daisy", "a chair", "a door", "a house", "a church tower", "a mountain")
ORDERS = (
    (SIZES, "smaller", "bigger"), (HEAVY, "lighter", "heavier"), (SPEEDS, "slower", "faster"),
    (LONG, "shorter", "longer"), (TALL, "lower", "higher"),
)  # fmt: skip


def number(rng: random.Random, value: int) -> str:
    """In words, or now and then in figures."""
    return spelled(value) if value <= 100 and rng.random() < 0.7 else str(value)


def addition(rng: random.Random) -> Fact:
    a, b = (rng.randint(1, 10), rng.randint(1, 10)) if rng.random() < 0.8 else (rng.randint(10, 50), rng.randint(1, 50))
    return _sum(rng, a, b, a + b, "and", "+", ("{a} and {b} [make|are] {c}", "{a} and {b} is {c}", "{a} plus {b} is {c}", "if you add {a} and {b}, you get {c}"))


def subtraction(rng: random.Random) -> Fact:
    b, c = (rng.randint(1, 10), rng.randint(0, 10)) if rng.random() < 0.8 else (rng.randint(1, 30), rng.randint(1, 60))
    return _sum(rng, b + c, b, c, "minus", "-", ("{b} from {a} leaves {c}", "{a} minus {b} is {c}", "if you take {b} from {a}, {c} [is|are] left" if c != 1 else "if you take {b} from {a}, {c} is left"))


def multiplication(rng: random.Random) -> Fact:
    a, b = rng.randint(1, 10), rng.randint(1, 10)
    return _sum(rng, a, b, a * b, "times", "x", ("{a} times {b} is {c}", "{a} times {b} makes {c}"))


def division(rng: random.Random) -> Fact:
    b, c = rng.randint(2, 10), rng.randint(1, 10)
    return _sum(rng, b * c, b, c, "divided by", ":", ("{a} divided by {b} is {c}", "if {a} is shared among {b}, each has {c}"))


def _sum(rng: random.Random, a: int, b: int, c: int, word: str, sign: str, tells: tuple[str, ...]) -> Fact:
    words = Phrases(rng)
    if rng.random() < 0.3:
        asked = f"{a} {sign} {b}"
        return Fact(f"{asked} = ?" if rng.random() < 0.5 else f"what is {asked}?", f"what {asked} is", str(c), f"{asked} = {c}")
    form = spelled if max(a, b, c) <= 100 and rng.random() < 0.7 else str
    given = {"a": form(a), "b": form(b), "c": form(c)}
    asked = f"{given['a']} {word} {given['b']}"
    question = words(rng.choice(("what is {asked}?", "how much is {asked}?", "what do you get if you work out {asked}?", "{asked}: how much is it?")), asked=asked)
    return Fact(question, f"how much {asked} is", given["c"], words(rng.choice(tells), **given))


THINGS = ("apples", "pears", "nuts", "eggs", "cakes", "books", "pencils", "marbles", "ducks", "hens", "flowers", "stones", "shells", "buttons", "coins", "kites", "balls", "sheep")


def counted(rng: random.Random) -> Fact:
    """A little story with a number in it, as they stand in books for schools."""
    words = Phrases(rng)
    b, c = rng.randint(1, 9), rng.randint(1, 9)
    a = b + c
    things = rng.choice(THINGS)
    one = {"ducks": "duck", "sheep": "sheep"}.get(things, things.removesuffix("s"))
    given = {"a": spelled(a), "b": spelled(b), "c": spelled(c), "cs": f"{spelled(c)} {things if c != 1 else one}", "as": f"{spelled(a)} {things}", "bs": f"{spelled(b)} {things if b != 1 else one}"}
    if rng.random() < 0.5:
        question = words("{name1} has {bs} and [finds|gets|is given] {c} more. How many {things} does {name1} have now?", things=things, **given)
        told = words("{b} and {c} [make|are] {a}, so there are {as}[| now]", **given)
        return Fact(question, words("how many {things} one has who has {b} and gets {c} more", things=things, **given), rng.choice((given["as"], given["a"])), told)
    question = words("{name1} has {as} and [gives {b} away|gives {b} to a friend|loses {b}]. How many {things} are left?", things=things, **given)
    told = words("{b} from {a} leaves {c}, so {cs} {is} left", **given, **{"is": "is" if c == 1 else "are"})
    return Fact(question, words("how many {things} are left if one has {a} and gives {b} away", things=things, **given), rng.choice((given["cs"], given["c"])), told)


def comparison(rng: random.Random) -> Fact:
    order, less, more = rng.choice(ORDERS)
    i, j = sorted(rng.sample(range(len(order)), 2))
    small, large = order[i], order[j]
    first, second = rng.sample((small, large), 2)
    up = rng.random() < 0.5
    word, answer = (more, large) if up else (less, small)
    tells = (f"{large} is {more} than {small}", f"{small} is {less} than {large}")
    return Fact(f"which is {word}, {first} or {second}?", f"which is {word}, {first} or {second}", answer, tells[0 if up else 1] if rng.random() < 0.7 else rng.choice(tells))


def neighbours(rng: random.Random) -> Fact:
    n = rng.randint(1, 98)
    a, b = spelled(n), spelled(n + 1)
    if rng.random() < 0.5:
        return Fact(f"{rng.choice(('which', 'what'))} number comes after {a}?", f"which number comes after {a}", b, rng.choice((f"{b} comes after {a}", f"after {a} comes {b}", f"the number after {a} is {b}")))
    return Fact(f"{rng.choice(('which', 'what'))} number comes before {b}?", f"which number comes before {b}", a, rng.choice((f"{a} comes before {b}", f"the number before {b} is {a}")))


def even_or_odd(rng: random.Random) -> Fact:
    n = rng.randint(1, 60)
    kind = "odd" if n % 2 else "even"
    a = number(rng, n)
    return Fact(f"is {a} an even or an odd number?", f"whether {a} is an even or an odd number", kind, rng.choice((f"{a} is an {kind} number", f"{a} is {kind}")))


SPELLED = split("cat; dog; house; mouse; apple; bread; garden; river; school; teacher; friend; water; summer; winter; letter; kitchen; window; flower; mother; father; sister; brother; horse; sheep; green; yellow; table; chair; bird; fish; moon; sun; star; tree; rain; snow; book; lamp; door; ship; king; queen; milk; cheese; butter; cake; morning; evening")


def spelling(rng: random.Random) -> Fact:
    word = rng.choice(SPELLED)
    letters = "-".join(word.upper())
    if rng.random() < 0.6:
        return Fact(rng.choice((f'how do you spell "{word}"?', f"how is {word} spelled?")), f'how one spells "{word}"', letters, rng.choice((f'"{word}" is spelled {letters}', f"one spells it {letters}")))
    if rng.random() < 0.5:
        return Fact(f'how many letters has the word "{word}"?', f'how many letters the word "{word}" has', spelled(len(word)), f'the word "{word}" has {spelled(len(word))} letters')
    return Fact(f'what is the first letter of "{word}"?', f'what the first letter of "{word}" is', word[0].upper(), f'the first letter of "{word}" is {word[0].upper()}')


SUMS = (addition, addition, addition, subtraction, subtraction, multiplication, division, counted, comparison, comparison, neighbours, even_or_odd, spelling)
