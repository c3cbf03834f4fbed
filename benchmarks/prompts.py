"""The prompts of the benchmarks."""

from pathlib import Path

_BEGINNINGS = (
    "Once upon a time there was a {} who",
    "The {} looked out of the window and",
    "In the middle of the forest a {}",
    "Early in the morning the {}",
    "There was nobody who knew the {}",
)
_HEROES = ("king", "fox", "sailor", "widow", "miller", "giant", "child", "wolf", "queen", "tailor")
_SETTINGS = ("", " by the sea", " in the hills")


def prompt_of(client: int) -> str:
    """A different prompt for each of 150 clients."""
    number, beginning = divmod(client, len(_BEGINNINGS))
    setting, hero = divmod(number, len(_HEROES))
    return _BEGINNINGS[beginning].format(_HEROES[hero]) + _SETTINGS[setting % len(_SETTINGS)]


def read_prompts(name: str) -> list[str]:
    r"""Those of a file in this folder, one per line; "\n" in it is a line break."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").split("\n")
    return [line.replace("\\n", "\n") for line in lines if line]


QUESTIONS = (
    "Explain gravity to a child.",
    "Write a Python function that reverses a list.",
    "Write a story about a fox.",
    "List five fruits.",
    "What is the capital of France?",
    "Why is the sky blue?",
)
_STORIES = (
    "Once upon a time there was a king who had three sons, and",
    "The old woman looked out of the window and saw",
    "In the middle of the forest stood a little house, where",
    "When the fox heard this, he laughed and said to the crow,",
    "The captain came on deck early in the morning and",
    "Anna had lost her blue ball in the garden, so she",
    "It was a dark night, and the wind",
    "A miller had a donkey that",
)
_LISTS = (
    "1. apples\n2. pears\n3. plums\n4.",
    "Monday, Tuesday, Wednesday, Thursday,",
    "- a red hat\n- a green coat\n- a blue",
    "one, two, three, four, five,",
    "bread, butter, milk, eggs, cheese, and",
    "Spring is green. Summer is gold. Autumn is brown.",
    "A is for apple.\nB is for bear.\nC is for",
    "one cat and one dog, two cats and two dogs, three",
)
_ODD = (
    "zx9 qq## 14:7 SELECT * FROM void;; the the",
    "@@@ 0x7f 0x80 üß ~~ {[",
    "def f(x):\n    return x +",
    "THE THE the 11 22 33 ?!?!",
    "<html><body><p class=x>",
    "E = m c ^ 2 ; F = m a ;",
    "lorem ipsum dolor sit amet",
    "--- 17:03:22 ERROR 404",
)
SITUATIONS: dict[str, tuple[float, tuple[str, ...]]] = {
    "greedy": (0.0, _STORIES),
    "T = 0.8": (0.8, _STORIES),
    "T = 1.3": (1.3, _STORIES),
    "a list": (0.0, _LISTS),
    "an odd prompt": (0.8, _ODD),
}
"""Kinds of text for the automatic window: temperature and prompts; several of each, since a single
text may suit some window by chance."""
