"""The palette of terminal, page and charts: for every kind of token a colour, a mark and a line
of meaning.

Colours show the source of a token: purple was drafted, green was accepted, red was rejected,
amber is from the residual, blue from the target. Both sets have WCAG AA contrast (4.5 : 1) as
text on their surfaces and on a 14% tint of themselves, and are distinct for deuteranopes,
protanopes and tritanopes. Every kind also has a mark and a line style, since colour alone must
not carry meaning. `tests/tools/show/test_palette.py` measures all of this.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Style:
    """The look of one kind of token."""

    light: str  # hex colour of text and lines on a light surface
    dark: str  # the same on a dark surface
    mark: str  # one character for the kind, for use without colour
    line: str  # the line of the token's text, as CSS `text-decoration`; empty for none
    label: str  # the kind's name in legends
    meaning: str  # the kind's meaning, in one line

    def color(self, dark: bool = False) -> str:
        return self.dark if dark else self.light


STYLES: dict[str, Style] = {
    "proposed": Style(
        "#66367e",
        "#fdb7fe",
        "?",
        "underline dotted",
        "drafted",
        "Proposed by the drafter; in the text, those not yet verified.",
    ),
    "accepted": Style(
        "#0d682d",
        "#97f4a9",
        "✓",
        "underline",
        "accepted",
        "Proposed by the drafter, accepted by the target.",
    ),
    "rejected": Style(
        "#be1633",
        "#ff745d",
        "✗",
        "line-through",
        "rejected",
        "Proposed by the drafter, rejected by the target.",
    ),
    "discarded": Style(
        "#60646a",
        "#a8acb3",
        "–",
        "line-through dotted",
        "discarded",
        "Dropped: an earlier draft token was rejected, or the text ended before it.",
    ),
    "resampled": Style(
        "#642f02", "#ffb204", "↻", "underline double", "resampled", "Replaces the rejected token."
    ),
    "bonus": Style(
        "#1f5cbf",
        "#51a3fe",
        "+",
        "underline dashed",
        "bonus",
        "The target's own, after a step with all draft tokens accepted, or with none.",
    ),
}
"""The style of each kind of token event."""

PROMPT = Style("#60646a", "#a8acb3", "›", "", "prompt", "What you wrote.")

DRAFT = STYLES["proposed"]
TARGET = STYLES["bonus"]
"""Charts draw the draft's and the target's distribution in the colour of the tokens drawn from
them."""


@dataclass(frozen=True, slots=True)
class Surface:
    """The background of text and charts: hex colours."""

    page: str  # the page's background
    panel: str  # the background of a panel or chart
    ink: str  # text
    muted: str  # less prominent text; still AA on page and panel
    rule: str  # grid lines and borders


LIGHT = Surface(page="#ffffff", panel="#f4f4f5", ink="#18181b", muted="#57595f", rule="#d4d4d8")
DARK = Surface(page="#0f0f11", panel="#27272a", ink="#f4f4f5", muted="#b6bac1", rule="#4a4a50")
