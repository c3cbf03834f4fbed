"""The opening: one recorded round that plays by itself, slowly, for who sees the page for the first time.

Python says what happened and in which words; `assets/js/opening.js` only plays it. What is drawn here is the end of the round,
which is also what stands there for who wants no movement.
"""

import html
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ui import labels
from ui.assets import component, markup_of
from ui.explain.glossary import link
from ui.run.recorded import FOLDER

FILE = "opening.json"
ELSEWHERE = ("run", "lesson", "room", "lecture", "embed")
"""What a link has in its query that leads to something else than the front door."""
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class Guess:
    """A drafted token and what became of it.

    Attributes:
        text: The token.
        p, q: Its probability under target and draft; both 0 where it was never reached.
        u: The draw that decided; kept if it is smaller than p/q.
        fate: "accepted", "rejected", or "discarded" where it was never reached.
    """

    text: str
    p: float
    q: float
    u: float
    fate: str

    @property
    def keep(self) -> float:
        """The probability with which it is kept: min(1, p/q)."""
        return min(1.0, self.p / self.q) if self.q > 0 else 1.0

    @property
    def word(self) -> bool:
        """Whether it is a whole word, which the space before it tells."""
        return self.text.startswith(" ") and self.text[1:].isalpha()


@dataclass(frozen=True, slots=True)
class Opening:
    """A round whose last judged guess is refused: after the text so far, prompt included, the guesses in order, and the token
    drawn in the place of the refused one."""

    before: str
    guesses: list[Guess]
    instead: str

    @property
    def kept(self) -> int:
        """How many guesses were kept."""
        return sum(guess.fate == "accepted" for guess in self.guesses)

    @property
    def refused(self) -> Guess:
        """The guess that was refused."""
        return self.guesses[self.kept]

    @property
    def words(self) -> bool:
        """Whether all of it is whole words."""
        return all(guess.word for guess in self.guesses) and Guess(self.instead, 0, 0, 0, "").word

    def save(self, folder: Path) -> None:
        """Write it down."""
        text = json.dumps(asdict(self), ensure_ascii=False, indent=1)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")


def recorded_opening(folder: Path = FOLDER) -> Opening | None:
    """The recorded round; None where none was recorded."""
    path = folder / FILE
    if not path.exists():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    return Opening(**data | {"guesses": [Guess(**guess) for guess in data["guesses"]]})


def build_opening() -> None:
    """The component, where a round was recorded."""
    if (opening := recorded_opening()) is not None:
        component("opening", value=markup(opening))


def markup(opening: Opening) -> str:
    """The figure as it ends: the guesses, what became of each, and the sentences that go with its scenes."""
    tail = opening.before[-160:].split("\n")[-1]
    return markup_of(
        "opening",
        elsewhere=" ".join(ELSEWHERE),
        title=f"One {link('round', 'round')}, slowly",
        described=html.escape(described(opening)),
        before=html.escape(tail),
        guesses="".join(_guesses(opening)),
        scenes="".join(f'<p data-scene="{number}">{said}</p>' for number, said in enumerate(scenes(opening))),
    )


def scenes(opening: Opening) -> list[str]:
    """A sentence for each scene, as HTML: guessing, comparing, judging, refusal, replacement, and what came of it."""
    noun = _noun(opening)
    refused, instead = opening.refused, opening.instead
    rest = len(opening.guesses) - opening.kept - 1
    unreached = " What follows it is not looked at." if rest else ""
    return [
        f"A small model guesses {_count(len(opening.guesses), noun)} ahead.",
        "A large model checks all in one pass: its probability of a guess is p, the small one’s q.",
        "A guess is kept with probability min(1, p/q), the green part of its bar. A die decides.",
        f"{_quoted(refused.text)}: p/q is {labels.number(refused.keep, 2)}, and the die fell in the red. Refused.{unreached}",
        f"{_quoted(instead)} is drawn in its place, from the {noun}s whose p is larger than their q.",
        f"<b>{_count(opening.kept + 1, noun).capitalize()} in one pass</b> of the large model, "
        "each as likely as without the guesses.",
    ]


def described(opening: Opening) -> str:
    """The whole of it for who hears it, in plain text."""
    refused, noun = opening.refused, _noun(opening)
    guesses = ", ".join(labels.visible(guess.text.strip()) for guess in opening.guesses)
    kept = ", ".join(labels.visible(guess.text.strip()) for guess in opening.guesses[: opening.kept])
    return (
        f"A recorded round. A small model guesses {_count(len(opening.guesses), noun)} ahead: {guesses}. "
        "The large model checks them all in one pass. A guess is kept with probability min(1, p/q), where p is the probability "
        f"that the large model gives it and q the small one's. Kept: {kept}. Refused: {labels.visible(refused.text.strip())}, "
        f"with p/q = {labels.number(refused.keep, 2)} and the die at {labels.number(refused.u, 2)}. "
        f"Drawn in its place: {labels.visible(opening.instead.strip())}. "
        f"{_count(opening.kept + 1, noun).capitalize()} in one pass of the large model, "
        "each as likely as without the guesses."
    )


def _guesses(opening: Opening) -> Iterator[str]:
    for guess in opening.guesses:
        word = f'<span class="ns-op-word">{labels.label(guess.text.strip() or guess.text)}</span>'
        if guess.fate == "discarded":
            yield f'<li data-kind="discarded">{word}<span class="ns-op-fate">not reached</span></li>'
            continue
        die = f'<span class="ns-op-bar" style="--keep:{guess.keep:.4f};--die:{guess.u:.4f}"><i></i><b></b></span>'
        numbers = f'<span class="ns-op-pq"><i>p {_probability(guess.p)},</i> <i>q {_probability(guess.q)}</i></span>'
        fate = '<span class="ns-op-fate">✓ kept</span>'
        if guess.fate == "rejected":
            instead = f'<span class="ns-op-instead" data-kind="resampled">↻ {labels.label(opening.instead.strip())}</span>'
            fate = f'<span class="ns-op-fate">✗ refused</span>{instead}'
        yield f'<li data-kind="{guess.fate}">{word}{die}{numbers}{fate}</li>'


def _probability(value: float) -> str:
    """In few characters, for what stands below a short word."""
    return f"{value:.3f}" if 0.0005 <= value < 0.9995 else f"≈ {value:.0f}"


def _noun(opening: Opening) -> str:
    return "word" if opening.words else "token"


def _count(amount: int, noun: str) -> str:
    number = _NUMBERS[amount] if amount < len(_NUMBERS) else str(amount)
    return f"{number} {noun}" + ("" if amount == 1 else "s")


def _quoted(text: str) -> str:
    return f"“{labels.label(text.strip() or text)}”"
