"""The one palette of terminal, page and charts: for every kind of token a colour, a mark and its meaning in a line.

The colour says which distribution a token came from: purple was drafted, green is what draft and target agree on, red
was refused, amber came from the residual, blue from the target itself. Both sets keep WCAG AA contrast (4.5 : 1) as
text on their surfaces and on a 14% tint of themselves, and stay apart for deuteranopes, protanopes and tritanopes.
Since colour alone must never carry the meaning, every kind has a mark and a line as well. `tests/test_palette.py`
measures all of it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Style:
    """How one kind of token looks.

    Attributes:
        light: Hex colour of text and lines on a light surface.
        dark: The same on a dark one.
        mark: One character that stands for the kind where there is no colour.
        line: How the token's text is lined, in the words of CSS `text-decoration`; empty for none.
        label: The kind's name in legends.
        meaning: What the kind means, in one line.
    """

    light: str
    dark: str
    mark: str
    line: str
    label: str
    meaning: str

    def color(self, dark: bool = False) -> str:
        """The colour for a surface."""
        return self.dark if dark else self.light


STYLES: dict[str, Style] = {
    "proposed": Style(
        "#66367e",
        "#fdb7fe",
        "?",
        "underline dotted",
        "drafted",
        "Guessed by the drafter; in the text, those not yet judged.",
    ),
    "accepted": Style("#0d682d", "#97f4a9", "✓", "underline", "accepted", "Guessed by the drafter, and kept by the target."),
    "rejected": Style(
        "#be1633", "#ff745d", "✗", "line-through", "rejected", "Guessed by the drafter, and refused by the target."
    ),
    "discarded": Style(
        "#60646a",
        "#a8acb3",
        "–",
        "line-through dotted",
        "discarded",
        "Thrown away: what it followed was refused, or the text ended before it.",
    ),
    "resampled": Style("#642f02", "#ffb204", "↻", "underline double", "resampled", "Takes the place of the rejected token."),
    "bonus": Style(
        "#1f5cbf",
        "#51a3fe",
        "+",
        "underline dashed",
        "bonus",
        "The target's own, after a round whose guesses were all kept, or that had none.",
    ),
}
"""The style of each kind that speaks of one token."""

PROMPT = Style("#60646a", "#a8acb3", "›", "", "prompt", "What you wrote.")

DRAFT = STYLES["proposed"]
TARGET = STYLES["bonus"]
RESIDUAL = STYLES["resampled"]
"""Charts draw the draft's, the target's and the residual distribution in the colour of the tokens drawn from them."""


@dataclass(frozen=True, slots=True)
class Surface:
    """What text and charts stand on: hex colours.

    Attributes:
        page: Behind everything.
        panel: Behind a panel or a chart.
        ink: Text.
        muted: Text of less weight; still AA on page and panel.
        rule: Grid lines and borders.
    """

    page: str
    panel: str
    ink: str
    muted: str
    rule: str


LIGHT = Surface(page="#ffffff", panel="#f4f4f5", ink="#18181b", muted="#57595f", rule="#d4d4d8")
DARK = Surface(page="#0f0f11", panel="#27272a", ink="#f4f4f5", muted="#b6bac1", rule="#4a4a50")
