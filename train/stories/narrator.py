"""Turns what happens into paragraphs: chooses names or pronouns, puts quotation marks and capitals in place."""

import random
import re

from train.stories.world import Character

SAYING = ("said", "asked", "cried", "answered", "called", "replied", "thought", "whispered", "shouted", "laughed", "begged")


class Narrator:
    """Collects sentences; a template such as ``"{A} looked at {b}."`` names characters by letter.

    ``{A}``/``{a}`` become the name, or ``he``/``she`` when the sentence before was about the same character and no
    other of the same pronoun was named in it. ``{A!}`` always gives the name.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.paragraphs: list[list[str]] = [[]]
        self._known: set[str] = set()
        self._last_subject: Character | None = None
        self._last_named: set[Character] = set()

    def say(self, *options: str, **cast: Character) -> None:
        """Add one of the sentences."""
        template = self.rng.choice(options)
        named: set[Character] = set()
        first: list[Character] = []

        def put(match: re.Match[str]) -> str:
            letter, form = match[1], match[2] or ""
            person = cast[letter.lower()]
            first.append(person)
            if form in ("him", "his", "he"):
                return str(getattr(person, form))
            if form == "kind":
                return person.kind
            if form == "Name":
                return person.name.removeprefix("the ").capitalize()
            named.add(person)
            if form != "!" and letter.isupper() and self._clear(person) and self.rng.random() < 0.7:
                return person.he
            return person.name

        text = re.sub(r"\{([A-Za-z])([a-zA-Z!]*)\}", put, template)
        self.paragraphs[-1].append(_capitals(text))
        self._last_subject = first[0] if first else None
        self._last_named = named | set(first)

    def _clear(self, person: Character) -> bool:
        others = {other.he for other in self._last_named if other is not person}
        return self._last_subject is person and person.he not in others

    def paragraph(self) -> None:
        if self.paragraphs[-1]:
            self.paragraphs.append([])
        self._last_subject = None
        self._last_named = set()

    def text(self) -> str:
        return "\n\n".join(" ".join(sentences) for sentences in self.paragraphs if sentences)


def _capitals(text: str) -> str:
    """A capital letter at the beginning, and at the beginning of each sentence and of each speech."""
    text = text[:1].upper() + text[1:] if text[0] != '"' else text[:1] + text[1:2].upper() + text[2:]
    return re.sub(r'([.!?]"? )("?)([a-z])', _maybe_capital, text)


def _maybe_capital(match: re.Match[str]) -> str:
    rest = match.string[match.end() - 1 :]
    ends_speech = match[1].endswith('" ') and not match[2]
    if rest.startswith(("he ", "she ")):
        rest = rest.split(" ", 1)[1]
    if ends_speech and match[1][0] in "!?" and rest.startswith(SAYING):
        return match[0]
    return match[1] + match[2] + match[3].upper()
