"""Fills templates with words, so that one line of a table can be told in many ways."""

import random
import re

from train.stories.slots import SLOTS

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([A-Za-z_]+)(\d*)\}")
_OPEN_ARTICLE = re.compile(r"\b([Aa]) (?=[\[{])")
_ARTICLE = re.compile(r"\b([Aa])\(n\) (?=(\W*)(\w+))")
_SOUNDS_LIKE_A = re.compile(r"(?:uni|use|eu|one\b|once\b)", re.IGNORECASE)
_SOUNDS_LIKE_AN = re.compile(r"(?:[aeiou]|hour|honest)", re.IGNORECASE)


class Phrases:
    """The words of one text.

    In a template ``[this|that]`` is one of the choices (they may nest, and one may be empty); in ``[a:this|that]`` and a later
    ``[a:here|there]`` the same one is taken, so that an answer suits its question. ``{food}`` is a word of
    ``SLOTS["food"]``, another one each time, and ``{food2}`` one that stays the same throughout the text and differs from
    the other numbered ones. ``{Food}`` begins with a capital letter. ``a(n)``, and an ``a`` before a choice
    or a slot, becomes the article that fits.
    """

    def __init__(self, rng: random.Random, **given: str) -> None:
        self.rng = rng
        self.given = given
        self._taken: dict[str, int] = {}  # which of the choices with a tag

    def __call__(self, template: str, **more: str) -> str:
        def put(match: re.Match[str]) -> str:
            name, number = match[1], match[2]
            low = name[0].lower() + name[1:]
            word = more.get(low + number) or self.given.get(low + number)
            if word is None:
                word = self._word(low, number)
            return word if low == name else capital(word)

        text = _OPEN_ARTICLE.sub(r"\1(n) ", template)
        while True:
            before = text
            text = _CHOICE.sub(self._choose, text)
            text = _SLOT.sub(put, text)
            if text == before:
                break
        return with_articles(text)

    def pick(self, options: tuple[str, ...] | list[str], **more: str) -> str:
        """One of the templates, filled."""
        return self(self.rng.choice(options), **more)

    def lines(self, *templates: str, **more: str) -> str:
        """Each template as a line; those that come out empty are left out."""
        return "\n".join(line for template in templates if (line := self(template, **more).strip()))

    def story(self, *templates: str, **more: str) -> str:
        """The templates as sentences of one paragraph; empty ones are left out."""
        return " ".join(part for template in templates if (part := self(template, **more).strip()))

    def keep(self, **more: str) -> None:
        """Words that stand for the slots of these names from now on."""
        self.given.update(more)

    def _choose(self, match: re.Match[str]) -> str:
        options = match[1].split("|")
        if options[0][1:2] != ":" or not options[0][0].islower():
            return self.rng.choice(options)
        tag, options[0] = options[0][0], options[0][2:]
        if tag not in self._taken:
            self._taken[tag] = self.rng.randrange(len(options))
        return options[self._taken[tag] % len(options)]

    def _word(self, name: str, number: str) -> str:
        table = SLOTS[name]
        if not number:
            return self(self.rng.choice(table))
        taken = {word for key, word in self.given.items() if key.rstrip("0123456789") == name}
        word = self(self.rng.choice(table))
        for _ in range(50):
            if word not in taken:
                break
            word = self(self.rng.choice(table))
        self.given[name + number] = word
        return word


def capital(text: str) -> str:
    """The first letter as a capital, behind a quotation mark too."""
    start = 1 if text[:1] in "\"'(" else 0
    return text[:start] + text[start : start + 1].upper() + text[start + 1 :]


def tidy(text: str) -> str:
    """Without the spaces that are left where a choice came out empty (those at the beginning of a line stay), and with a
    comma where a speech goes on with "said"."""
    text = re.sub(r"(?<=\S) {2,}", " ", text)
    text = re.sub(r"(?<=[^\s:=]) +(?=[.,;!?](?:\W|$))", "", text)
    text = re.sub(r'\.(?=" (?:said|answered|replied|explained) )', ",", text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def with_articles(text: str) -> str:
    def article(match: re.Match[str]) -> str:
        word = match[3]
        an = bool(_SOUNDS_LIKE_AN.match(word)) and not _SOUNDS_LIKE_A.match(word)
        return f"{match[1]}{'n' if an else ''} "

    return _ARTICLE.sub(article, text)


def joined(words: list[str], last: str = "and") -> str:
    """ "a pot, a pan and a spoon"."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
