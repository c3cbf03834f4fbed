"""The glossary: the page's terms in a sentence or two each (`assets/glossary.toml`), and links
to them.

`linked` finds the terms in a sentence. Text in quotation marks was written by a model and is
never linked.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

from ui.assets import ROOT, render


@dataclass(frozen=True, slots=True)
class Term:
    """One entry: its address is `#term-` and its key. `forms` are regular expressions that match
    it in sentences, empty if only markup links to it; `source` is the address of the paper or
    page that it comes from, empty for common words."""

    key: str
    name: str
    meaning: str
    forms: Sequence[str] = ()
    source: str = ""


TERMS = tuple(
    Term(key, **fields | {"meaning": fields["meaning"].replace("\n", " ")})
    for key, fields in tomllib.loads((ROOT / "glossary.toml").read_text(encoding="utf-8")).items()
)
"""In the order in which a newcomer meets them."""

_FORMS = {f"t{number}": term for number, term in enumerate(TERMS) if term.forms}
_PATTERN = re.compile(
    "|".join(
        f"(?P<{name}>(?<!\\w)(?:{'|'.join(term.forms)})(?!\\w))" for name, term in _FORMS.items()
    )
)
_QUOTED = re.compile("(“.*?”)", re.DOTALL)


def linked(sentence: str) -> list[tuple[str, str | None]]:
    """The sentence in pieces, each with the key of its term; the first mention of each term has
    one."""
    pieces: list[tuple[str, str | None]] = []
    linked_terms: set[str] = set()
    for part in _QUOTED.split(sentence):
        at = 0
        for match in () if part.startswith("“") else _PATTERN.finditer(part):
            term = _FORMS[str(match.lastgroup)]
            if term.key in linked_terms:
                continue
            linked_terms.add(term.key)
            pieces += [(part[at : match.start()], None), (match[0], term.key)]
            at = match.end()
        pieces.append((part[at:], None))
    return [piece for piece in pieces if piece[0]]


def glossary() -> str:
    """The dialog with all terms, as HTML."""
    return render("glossary", terms=TERMS)
