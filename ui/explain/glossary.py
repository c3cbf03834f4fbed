"""The glossary: every term that the page uses, in a sentence or two (`assets/glossary.toml`), and the links that lead there.

`linked` finds the terms in a sentence, so that whoever writes one need not think of it. What stands in quotation marks was
written by a model and is never taken for a term.
"""

import html
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ui.assets import ROOT


@dataclass(frozen=True, slots=True)
class Term:
    """One entry.

    Attributes:
        key: Its address is `#term-` and this.
        name: What it is called.
        meaning: What that is, in words that need no other course.
        forms: Regular expressions for how sentences speak of it; empty where only markup links to it.
        source: Address of the paper or page that it comes from; empty for words that are everybody's.
    """

    key: str
    name: str
    meaning: str
    forms: Sequence[str] = ()
    source: str = ""


class Piece(NamedTuple):
    """A piece of a sentence, and the key of the term that it is."""

    text: str
    term: str | None = None


TERMS = tuple(
    Term(key, **told | {"meaning": told["meaning"].replace("\n", " ")})
    for key, told in tomllib.loads((ROOT / "glossary.toml").read_text(encoding="utf-8")).items()
)
"""By the order in which a newcomer meets them."""

_FORMS = {f"t{number}": term for number, term in enumerate(TERMS) if term.forms}
_PATTERN = re.compile("|".join(f"(?P<{name}>(?<!\\w)(?:{'|'.join(term.forms)})(?!\\w))" for name, term in _FORMS.items()))
_QUOTED = re.compile("(“.*?”)", re.DOTALL)


def linked(sentence: str) -> list[Piece]:
    """The sentence in pieces, with the first mention of each term outside quotation marks."""
    pieces: list[Piece] = []
    seen: set[str] = set()
    for part in _QUOTED.split(sentence):
        at = 0
        for found in () if part.startswith("“") else _PATTERN.finditer(part):
            term = _FORMS[str(found.lastgroup)]
            if term.key in seen:
                continue
            seen.add(term.key)
            pieces += [Piece(part[at : found.start()]), Piece(found[0], term.key)]
            at = found.end()
        pieces.append(Piece(part[at:]))
    return [piece for piece in pieces if piece.text]


def link(text: str, key: str) -> str:
    """A link from plain text to the term of this key."""
    return f'<a class="ns-term" href="#term-{key}">{html.escape(text)}</a>'


def glossary() -> str:
    """The dialog with all terms, as HTML."""

    def source(term: Term) -> str:
        return f' <a href="{term.source}" target="_blank" rel="noopener">source</a>' if term.source else ""

    entries = "".join(
        f'<div id="term-{term.key}" tabindex="-1"><dt>{html.escape(term.name)}</dt>'
        f"<dd>{html.escape(term.meaning)}{source(term)}</dd></div>"
        for term in TERMS
    )
    return (
        '<dialog class="ns-glossary" aria-labelledby="glossary-title"><header><h2 id="glossary-title">Glossary</h2>'
        f'<button type="button" data-close>Close</button></header><dl>{entries}</dl></dialog>'
    )
