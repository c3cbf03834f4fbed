"""The opening: one recorded step that plays slowly by itself for first-time visitors.

Python provides the words; `assets/js/opening.js` only plays them. The markup shows the end of the step, which is also what
visitors see who prefer no motion.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from markupsafe import Markup

from ui import labels
from ui.assets import component, render
from ui.run.recorded import FOLDER

FILE = "opening.json"
ELSEWHERE = ("run", "lesson", "room", "lecture", "embed")
"""Query parameters of links that lead to something other than the home page."""
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class DraftToken:
    """A draft token and its verdict.

    Attributes:
        text: The token.
        p, q: Its probability under target and draft; both 0 if it was discarded.
        u: The draw: it is accepted if u is smaller than p/q.
        fate: "accepted", "rejected" or "discarded".
    """

    text: str
    p: float
    q: float
    u: float
    fate: str

    @property
    def accept_prob(self) -> float:
        """The probability of accepting it: min(1, p/q)."""
        return min(1.0, self.p / self.q) if self.q > 0 else 1.0

    @property
    def is_word(self) -> bool:
        """Whether it is a whole word; a space before it shows that."""
        return self.text.startswith(" ") and self.text[1:].isalpha()


@dataclass(frozen=True, slots=True)
class Opening:
    """A step with a rejected draft token.

    Attributes:
        before: The text before it, prompt included.
        drafts: The draft tokens in order.
        resampled: The token that replaces the rejected one.
    """

    before: str
    drafts: list[DraftToken]
    resampled: str

    @property
    def num_accepted(self) -> int:
        """How many draft tokens were accepted."""
        return sum(draft.fate == "accepted" for draft in self.drafts)

    @property
    def rejected(self) -> DraftToken:
        """The rejected draft token."""
        return self.drafts[self.num_accepted]

    @property
    def all_words(self) -> bool:
        """Whether every token is a whole word."""
        return all(draft.is_word for draft in self.drafts) and DraftToken(self.resampled, 0, 0, 0, "").is_word

    def save(self, folder: Path) -> None:
        """Write it to a file in this folder."""
        text = json.dumps(asdict(self), ensure_ascii=False, indent=1)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")


def recorded_opening(folder: Path = FOLDER) -> Opening | None:
    """The recorded step; None if there is none."""
    path = folder / FILE
    if not path.exists():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    return Opening(**data | {"drafts": [DraftToken(**draft) for draft in data["drafts"]]})


def build_opening() -> None:
    """The component, if a step was recorded."""
    if (opening := recorded_opening()) is not None:
        component("opening", value=markup(opening))


def markup(opening: Opening) -> str:
    """The final picture: draft tokens, verdicts, and a sentence per scene."""
    return render(
        "opening",
        elsewhere=" ".join(ELSEWHERE),
        described=described(opening),
        before=opening.before[-160:].split("\n")[-1],
        drafts=opening.drafts,
        resampled=opening.resampled,
        scenes=scenes(opening),
        short=_probability,
    )


def scenes(opening: Opening) -> list[str]:
    """A sentence for each scene, as HTML: draft, compare, judge, reject, resample, result."""
    noun = _noun(opening)
    rejected = opening.rejected
    rest = len(opening.drafts) - opening.num_accepted - 1
    discarded = " The rest is discarded." if rest else ""
    return [
        f"A small model drafts {_count(len(opening.drafts), noun)}.",
        "A large model verifies all in one pass: p is its probability, q the small model’s.",
        "Each is accepted with probability min(1, p/q), the green part. A random draw decides.",
        f"{_quoted(rejected.text)}: p/q is {labels.number(rejected.accept_prob, 2)}, and the draw fell in the red. "
        f"Rejected.{discarded}",
        f"{_quoted(opening.resampled)} is drawn instead, from the {noun}s whose p is larger than their q.",
        Markup("<b>{} in one pass</b> of the large model, each as likely as without drafting.").format(
            _count(opening.num_accepted + 1, noun).capitalize()
        ),
    ]


def described(opening: Opening) -> str:
    """A description for screen readers, in plain text."""
    rejected, noun = opening.rejected, _noun(opening)
    texts = [labels.visible(draft.text.strip()) for draft in opening.drafts]
    return (
        f"A recorded step. A small model drafts {_count(len(opening.drafts), noun)}: {', '.join(texts)}. "
        "The large model verifies them in one pass. A draft token is accepted with probability min(1, p/q), where p is its "
        "probability under the large model and q under the small one. "
        f"Accepted: {', '.join(texts[: opening.num_accepted])}. Rejected: {texts[opening.num_accepted]}, "
        f"with p/q = {labels.number(rejected.accept_prob, 2)} and the draw {labels.number(rejected.u, 2)}. "
        f"Drawn instead: {labels.visible(opening.resampled.strip())}. "
        f"{_count(opening.num_accepted + 1, noun).capitalize()} in one pass of the large model, "
        "each as likely as without drafting."
    )


def _probability(value: float) -> str:
    """A probability in few characters, to fit below a short word."""
    return f"{value:.3f}" if 0.0005 <= value < 0.9995 else f"≈ {value:.0f}"


def _noun(opening: Opening) -> str:
    return "word" if opening.all_words else "token"


def _count(amount: int, noun: str) -> str:
    number = _NUMBERS[amount] if amount < len(_NUMBERS) else str(amount)
    return f"{number} {noun}" + ("" if amount == 1 else "s")


def _quoted(text: str) -> str:
    return f"“{labels.visible(text.strip() or text)}”"
