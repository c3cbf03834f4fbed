"""One step as an SVG drawing: a small drafter, a large target, and a column per draft token.

The page's stage, the lessons and the file for a slide are this drawing. Its parts have names
(`data-part`), by which `assets/js/machine.js` moves them in the order in which they happened.
"""

import html
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any
from unicodedata import east_asian_width

from naive_speculate.events.event import (
    OUTPUT_KINDS,
    TARGET_KINDS,
    TOKEN_KINDS,
    Event,
    EventKind,
    TokenProb,
)
from naive_speculate.events.steps import Step
from naive_speculate.text import visible
from naive_speculate.tools.show.columns import (
    LONGEST,
    Column,
    captions,
    columns_of,
    rejected_at,
    rule_of,
)
from naive_speculate.tools.show.palette import LIGHT, STYLES

Paint = Callable[[str], str]
"""From the name of a kind or of a ground, such as `accepted` or `ink`, to a colour."""

_FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
_MOST_SIBLINGS = 7
_BOX = 15  # widest box of a token, in its type's size
_NAMED = {
    "verify_strategy": "",
    "num_draft_tokens": "k = ",
    "temperature": "temperature ",
    "top_p": "top-p ",
    "drafter": "drafter ",
}
_MODELS = {"drafter": "the small model, which proposes", "target": "the large model, which decides"}
_ROUNDING = 1e-6
_USUAL = {"top_p": 1.0, "drafter": "model"}  # defaults, not shown
_DASHES = {"dotted": "1.5 2.5", "dashed": "5 3"}


_WHY_NO_DRAW = {
    "greedy": ("no draw, so no u:", "the favourite decides"),
    "threshold": ("no draw, so no u:", "the threshold decides"),
    "match": ("no u: the target", "draws its own token"),
}


@dataclass(frozen=True)
class Layout:
    """Positions and sizes in units of the drawing, for a place of about that width."""

    width: float
    left: float  # where the columns begin
    right: float  # room after them, for what the step gains; 0: below them
    least: float  # of a column; more columns than fit widen the drawing
    chip: float  # size of a token's type
    label: float  # size of the other type
    text: float  # size of the text so far
    drafter: float  # side of the drafter's square
    target: float
    drafted: float  # top of the row of draft tokens
    bars: float  # height of a bar of 1

    @property
    def height(self) -> float:
        """Of a token's box."""
        return self.chip * 1.8


LAYOUTS = {
    "large": Layout(1384, 248, 226, 96, 22, 15, 24, 36, 84, 62, 92),
    "medium": Layout(990, 196, 138, 82, 18, 14, 20, 28, 64, 54, 84),
    "small": Layout(700, 160, 122, 66, 16, 13, 17, 20, 46, 46, 70),
    "narrow": Layout(366, 0, 0, 66, 15, 13, 15, 18, 30, 60, 66),
    "lesson": Layout(520, 0, 0, 66, 17, 13, 17, 18, 26, 60, 44),
}
"""By name: for a desktop, a projector, a projector in lecture mode (enlarged), a phone, a lesson
next to its text."""
LAYOUTS["slide"] = replace(LAYOUTS["medium"], least=116)


def step_svg(
    events: Iterable[Event],
    step: int,
    row: int = 0,
    *,
    layout: str = "slide",
    paint: Paint | None = None,
) -> str:
    """The drawing of a step; all text is escaped. Without a `paint` it is a file on white, with
    the run's parameters in its caption. Raises `ValueError` if the events have no token of this
    step."""
    own = [event for event in events if event.row == row]
    tokens = [
        event
        for event in own
        if event.step == step and event.kind in TOKEN_KINDS and event.token_id is not None
    ]
    if not tokens:
        raise ValueError(
            f"step must be the number of a step with tokens, got {step!r:.80} for row {row!r:.80}"
        )
    started = next((event for event in own if event.kind == EventKind.STARTED), None)
    end = [event for event in own if event.step == step and event.kind == EventKind.STEP]
    columns = columns_of(Step(step, [*tokens, *end]))
    strategy = ((started and started.settings) or {}).get("verify_strategy")
    drawing = _Drawing(LAYOUTS[layout], paint or _on_white, columns, rule_of(columns, strategy))
    drawing.fill(*_texts(own, started, step))
    if paint is None:
        drawing.caption(_caption(own, started, step))
    else:
        for number in range(len(columns)):
            drawing.place(number)
    return drawing.svg(step, ground=paint is None)


def _on_white(name: str) -> str:
    return STYLES[name].light if name in STYLES else str(getattr(LIGHT, name))


class _Drawing:
    """Collects the shapes of a drawing."""

    def __init__(self, layout: Layout, paint: Paint, columns: list[Column], rule: str) -> None:
        self.layout, self.paint, self.columns, self.rule = layout, paint, columns, rule
        inner = layout.width - layout.left - layout.right
        self.column = min(max(layout.least, inner / len(columns)), inner / 2)
        self.half = min(self.column / 2 - (6 if layout.left else 3), layout.chip * _BOX / 2)
        self.width = max(layout.width, layout.left + self.column * len(columns) + layout.right)
        siblings = max(len(column.siblings) for column in columns)
        self.slot = layout.chip * 1.35
        tree = self.slot * (min(siblings, _MOST_SIBLINGS) + (siblings > _MOST_SIBLINGS))
        label = layout.label
        self.narrow = not layout.left
        self.tight = self.column < 7 * layout.label
        above = layout.target + 16 if self.narrow else label * 1.7
        self.frame = layout.drafted + layout.height + tree + above
        self.base = self.frame + label * 1.5 + layout.bars
        self.pass_end = self.base + label * 1.6
        self.verdicts = self.pass_end + label * 1.5
        self.gains = self.verdicts + label * 4.2
        self.height = self.gains + layout.height + label * (4.5 if self.narrow else 1.9)
        self.parts: list[str] = []

    def fill(self, prompt: str, before: str, new: str) -> None:
        """Everything but the caption, in the order in which it appears."""
        self._text_line(prompt, before, new)
        self._machines()
        for number in range(len(self.columns)):
            self._window(number)
        self._target_pass()
        for number in range(len(self.columns)):
            self._outcome(number)
        self._residual()
        self._count()

    def caption(self, text: str) -> None:
        size = self.layout.label
        for line in wrap(text, int((self.width - 40) / size / 0.52)):
            self.height += size * 1.4
            self._words(12, self.height - size, line, color="muted")

    def svg(self, step: int, *, ground: bool) -> str:
        name = next(name for name, layout in LAYOUTS.items() if layout is self.layout)
        box = f'data-layout="{name}" viewBox="0 0 {self.width:g} {self.height:g}"'
        said = html.escape(json.dumps(captions(self.columns, self.rule)))
        more = (
            'role="img"' if ground else f'role="group" data-rule="{self.rule}" data-says="{said}"'
        )
        looks = f'{box} font-family="{_FONT}" {more}'
        sizes = f' width="{self.width:g}" height="{self.height:g}"' if ground else ""
        white = f'<rect width="{self.width:g}" height="{self.height:g}" fill="{LIGHT.page}"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {looks}{sizes}><title>Step {step + 1}'
            f"</title>{white if ground else ''}{''.join(self.parts)}</svg>\n"
        )

    def _text_line(self, prompt: str, before: str, new: str) -> None:
        """The text so far with the cursor, without and with what the step adds."""
        size = self.layout.text
        letters = int((self.width - (4 if self.narrow else 48)) / size / 0.53)
        most = max(8, letters - len(new))
        if len(prompt) + len(before) > most:
            prompt = "" if len(before) >= most else "…" + prompt[len(prompt) + len(before) - most :]
            before = before if len(before) < most else "…" + before[len(before) - most :]
        x = 0 if self.narrow else 24
        for part, more in (("before", ""), ("after", new)):
            spans = (
                ("", prompt, "muted"),
                ("", before, "accepted"),
                (' class="ns-new"', more, "accepted"),
                ("", "▏", "bonus"),
            )
            shown = "".join(
                f'<tspan{name} fill="{self.paint(color)}">{_inner(text)}</tspan>'
                for name, text, color in spans
                if text
            )
            hidden = "" if part == "after" else ' opacity="0"'
            self.parts.append(
                f'<text class="ns-own" data-part="{part}" x="{x}" y="{size * 1.45:g}"'
                f' font-size="{size:g}" xml:space="preserve"{hidden}>{shown}</text>'
            )

    def _machines(self) -> None:
        """The drafter and the target, whose sizes stand for the cost of a pass, and row titles."""
        layout, label, drafts = self.layout, self.layout.label, _drafts(self.columns)
        middle = layout.drafted + layout.height / 2
        tops = {
            "drafter": layout.drafted - layout.drafter - 8
            if self.narrow
            else middle - layout.drafter / 2,
            "target": self.frame - layout.target - 7
            if self.narrow
            else (self.frame + self.pass_end - layout.target) / 2,
        }
        rows = (
            ("drafter", "proposed", layout.drafter, _drafting(drafts)),
            ("target", "bonus", layout.target, "1 large pass"),
        )
        for name, color, side, cost in rows:
            top = tops[name]
            x = 0 if self.narrow else layout.left - layout.chip * 0.7 - side
            fill = f'fill="{self.paint(color)}"'
            if name == "drafter" and (not drafts or drafts[0].copied_from is not None):
                fill = f'fill="none" stroke="{self.paint("rule")}" stroke-width="2"'
            self.parts.append(
                f'<rect data-part="{name}" x="{x:g}" y="{top:g}" width="{side:g}"'
                f' height="{side:g}" rx="{side / 8:g}" {fill}><title>{_MODELS[name]}</title></rect>'
            )
            at, y = (side + 8, top + side * 0.75) if self.narrow else (10, top + side / 2 - 1)
            # one line of text, so that no name can be too long for it, whatever its language
            below = f'dx="{label * 0.6:g}"' if self.narrow else f'x="{at}" dy="{label * 1.1:g}"'
            self.parts.append(
                f'<text x="{at}" y="{y:g}"><tspan font-size="{label * 1.1:g}" font-weight="700"'
                f' fill="{self.paint(color)}">{name}</tspan><tspan {below}'
                f' font-size="{label * 0.87:g}" fill="{self.paint("muted")}">{cost}</tspan></text>'
            )
        if not self.narrow:
            if drafts:
                y = self.verdicts + label * (
                    0.4 if self._drawn or self.rule in _WHY_NO_DRAW else 1.4
                )
                self._words(10, y, "verdict", color="muted", weight=600)
            y = self.gains + layout.height / 2 + label / 3
            self._words(10, y, "text gains", color="muted", weight=600)
        self._legend()

    @property
    def _drawn(self) -> bool:
        """Whether a verdict of this step is a draw."""
        judged = (
            c.verdict for c in self.columns if c.verdict and c.verdict.accept_prob is not None
        )
        return any(verdict.uniform is not None for verdict in judged)

    def _legend(self) -> None:
        """What the mark on a verdict's bar is, or why there is none; on a phone, q and p too."""
        label, lines = self.layout.label, list(_WHY_NO_DRAW.get(self.rule, ()))
        if self._drawn:
            lines = ["▮ u: random, from 0 to 1", "in the green: accepted"]
        x, y = 10.0, self.verdicts + label * 1.6
        if self.narrow:
            x, y, lines = 0.0, self.height - label * 0.6, ["; ".join(lines)]
        size, steps = label * 0.87, enumerate(lines)
        texts = [self._text(x, y + n * label * 1.2, t, size=size, color="muted") for n, t in steps]
        if any(lines):
            self._group("legend", None, "", *texts)
        if self.narrow:
            self._words(0, y - label * 1.2, self._letters, size=size, color="muted")

    @property
    def _letters(self) -> str:
        """What q and p are."""
        drafted = bool(_drafts(self.columns))
        return (
            "q: the drafter’s probability, p: the target’s"
            if drafted
            else "p: the target’s probability"
        )

    def _middle(self, number: int) -> float:
        return self.layout.left + self.column * (number + 0.5)

    def _window(self, number: int) -> None:
        """The draft token of a column, its siblings in a tree, and its q."""
        column, top = self.columns[number], self.layout.drafted
        middle = self._middle(number)
        if column.draft is not None:
            with_box = self._box(middle, top, _text(column.draft), "proposed")
            copied = column.draft.copied_from is not None
            self._group("draft", number, "copied" if copied else "proposed", *with_box)
            self._bar("q", number, column.draft.draft_prob)
        elif not column.siblings:
            self._bonus_place(number)
        shown = column.siblings[:_MOST_SIBLINGS]
        for slot, (node, parent) in enumerate(shown, start=1):
            y = top + self.layout.height + self.slot * (slot - 1) + 3
            text = visible(node.text, 10)
            parts = self._small(middle, y, text, node.kind)
            if parent is not None:
                parts.append(self._branch(parent, middle, y))
            self._group("node", number, node.kind, *parts)
        if more := len(column.siblings) - len(shown):
            y = top + self.layout.height + self.slot * (_MOST_SIBLINGS + 0.7)
            self._words(middle, y, f"+{more}", color="muted", anchor="middle")

    def _branch(self, parent: tuple[int, int], middle: float, y: float) -> str:
        """The line from a node's parent to it."""
        number, slot = parent
        slot = min(slot, _MOST_SIBLINGS)
        top = self.layout.drafted
        from_y = (
            top + self.layout.height / 2
            if slot == 0
            else top + self.layout.height + self.slot * (slot - 0.5) + 2
        )
        half = self.column / 2 - 6
        x1, x2, y2 = self._middle(number) + half, middle - half, y + self.slot / 2 - 2
        return (
            f'<line x1="{x1:g}" y1="{from_y:g}" x2="{x2:g}" y2="{y2:g}"'
            f' stroke="{self.paint("rule")}" stroke-width="1.5"/>'
        )

    def _bonus_place(self, number: int) -> None:
        """The column of a token that is used if all drafts pass."""
        layout = self.layout
        x, half = self._middle(number), self.half
        height = layout.height
        self.parts.append(
            f'<rect x="{x - half:g}" y="{layout.drafted:g}" width="{2 * half:g}"'
            f' height="{height:g}" rx="7" fill="none" stroke="{self.paint("rule")}"'
            f' stroke-width="1.5" stroke-dasharray="5 4"/>'
        )
        y = layout.drafted + height / 2 + layout.label * 0.35
        name = "bonus" if any(column.draft for column in self.columns) else "next token"
        self._words(x, y, name, color="muted", anchor="middle")

    def _target_pass(self) -> None:
        """The frame of the one pass over all columns, and p of each."""
        layout = self.layout
        x, width = layout.left + 1, self.column * len(self.columns) - 2
        blue = self.paint("bonus")
        box = f'y="{self.frame:g}" height="{self.pass_end - self.frame:g}" rx="9"'
        self._group(
            "sweep",
            None,
            "",
            f'<rect x="{x:g}" width="{self.column:g}" {box} fill="{blue}" opacity="0"/>',
        )
        title = "one target pass"
        size = layout.label * 0.95
        at = self.width - 12 if self.narrow else x + 14
        label = self._text(
            at,
            self.frame - size * 0.42,
            title,
            size=size,
            color="bonus",
            weight=600,
            anchor="end" if self.narrow else "start",
        )
        line = f'fill="none" stroke="{blue}" stroke-width="2.5"'
        outline = f'<rect x="{x:g}" width="{width:g}" {box} {line}/>'
        self._group("pass", None, "", outline, label)
        if not self.narrow:
            after, y = x + 14 + size * 10, self.frame - size * 0.42
            self._words(after, y, self._letters, size=size * 0.92, color="muted")
        for number, column in enumerate(self.columns):
            self._bar("p", number, column.p)

    def _bar(self, name: str, number: int, value: float | None) -> None:
        """A bar of q or p with its number."""
        if value is None:
            return
        size = self.layout.label * 0.86
        width = min(28.0, self.column / 4.4)
        height = max(1.5, self.layout.bars * min(1.0, max(0.0, value)))
        gap = max(3.0, size * 3.2 - width) / 2  # between numbers
        middle = self._middle(number)
        x = middle - width - gap if name == "q" else middle + gap
        color = self.paint("proposed" if name == "q" else "bonus")
        center, shown = x + width / 2, self._number(value)
        verdict, mark = self.columns[number].verdict, ""
        if name == "p" and verdict is not None and verdict.threshold is not None:
            at = self.base - self.layout.bars * min(1.0, max(0.0, verdict.threshold))
            mark = (
                f'<rect x="{x - 5:g}" y="{at - 1:g}" width="{width + 10:g}" height="2.5"'
                f' fill="{self.paint("ink")}"/>'
            )
        self._group(
            name,
            number,
            "",
            f'<rect x="{x:g}" y="{self.base - height:g}" width="{width:g}" height="{height:g}"'
            f' rx="2" fill="{color}"/>',
            self._text(center, self.base - height - 4, shown, size=size, anchor="middle"),
            self._text(
                center, self.base + size * 1.15, name, size=size, color="muted", anchor="middle"
            ),
            mark,
        )

    def _outcome(self, number: int) -> None:
        """The verdict on a column's draft token, and what the text gains there."""
        column, middle = self.columns[number], self._middle(number)
        layout, verdict = self.layout, self.columns[number].verdict
        if verdict is not None:
            if verdict.kind in (EventKind.REJECTED, EventKind.DISCARDED):
                box = self._box(middle, layout.drafted, _text(verdict), verdict.kind)
                self._group("fate", number, verdict.kind, *box)
            self._group("verdict", number, verdict.kind, *self._verdict(middle, number, verdict))
        if column.gain is not None:
            kind = column.gain.kind
            text = f"{_text(column.gain)} {STYLES[kind].mark}"
            parts = self._box(middle, self.gains, text, kind)
            if kind in TARGET_KINDS:
                y, size = self.gains + layout.height + layout.label * 1.25, layout.label
                drafted = len(self.columns) > 1  # a token of plain decoding is no bonus
                name = f"{STYLES[kind].mark} {STYLES[kind].label}" if drafted else "from the target"
                x = max(middle, layout.left + len(name) * size * 0.36)
                parts.append(self._text(x, y, name, color=kind, weight=600, anchor="middle"))
            self._group("gain", number, kind, *parts)

    def place(self, number: int) -> None:
        """The column itself, which a pointer or a key chooses, with its facts; and its u."""
        column, half = self.columns[number], self.column / 2 - 2
        if column.draft is None and column.gain is None and not column.unused:
            return
        event, top = column.draft or column.gain, self.layout.drafted - 4
        facts = html.escape(json.dumps(column.facts(), separators=(",", ":")))
        step = next(e.step for c in self.columns if (e := c.draft or c.gain) is not None)
        index = number if event is None else event.index or 0
        where = f'data-step="{step}" data-index="{index}"'
        self.parts.append(
            f'<rect class="ns-column" {where} data-facts="{facts}"'
            f' x="{self._middle(number) - half:g}" y="{top:g}" width="{2 * half:g}"'
            f' height="{self.height - top - 6:g}" rx="8" fill="transparent"/>'
        )
        if self.rule in ("p/q", "h") and (
            column.verdict and column.verdict.accept_prob is not None
        ):
            x, top, width, height = self._bar_of_u(number)
            self.parts.append(
                f'<rect class="ns-u" {where} x="{x:g}" y="{top - 8:g}" width="{width:g}"'
                f' height="{height + 16:g}" fill="transparent"/>'
            )

    def _verdict(self, middle: float, number: int, verdict: Event) -> list[str]:
        """Why: the number with the draw on a bar of 1, or the target's favourite; and the fate."""
        label, y = self.layout.label, self.verdicts
        parts = list[str]()
        accept, u, fate = verdict.accept_prob, verdict.uniform, STYLES[verdict.kind]
        favourite = verdict if verdict.kind == EventKind.ACCEPTED else self.columns[number].gain
        reason = self._reason(verdict)
        if reason:
            parts.append(self._text(middle, y, reason, size=label * 0.95, anchor="middle"))
        elif accept is not None and u is None and favourite is not None:
            whose = "target’s favourite:" if self.column > 130 else "target:"
            if 0 < accept < 1:  # its own draw is compared
                whose = "target drew:"
            parts.append(
                self._text(middle, y, whose, size=label * 0.9, color="muted", anchor="middle")
            )
            parts.append(
                self._text(
                    middle,
                    y + label * 1.35,
                    _text(favourite),
                    size=label * 1.1,
                    color="bonus",
                    weight=600,
                    anchor="middle",
                    own=True,
                )
            )
        if accept is not None and u is not None:
            parts += self._odds(number, min(1.0, max(0.0, accept)), u)
            parts.append(
                self._text(
                    middle,
                    y + label * 2.15,
                    self._equals("u", u),
                    size=label * 0.9,
                    anchor="middle",
                    line=' data-part="u"',
                )
            )
        name = fate.mark if self.tight else f"{fate.mark} {fate.label}"
        at = y + label * (3.3 if accept is not None else 0.6)
        parts.append(self._text(middle, at, name, color=verdict.kind, weight=600, anchor="middle"))
        return parts

    def _odds(self, number: int, accept: float, u: float) -> list[str]:
        """A bar of width 1, green up to the probability of acceptance, and the draw on it."""
        x, top, width, height = self._bar_of_u(number)
        needle = x + width * min(1.0, max(0.0, u))
        return [
            f'<rect x="{x:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="2"'
            f' fill="{self.paint("rejected")}"/>',
            f'<rect x="{x:g}" y="{top:g}" width="{width * accept:g}" height="{height:g}" rx="2"'
            f' fill="{self.paint("accepted")}"/>',
            f'<rect data-part="draw" x="{needle - 3:g}" y="{top - 4:g}" width="6"'
            f' height="{height + 8:g}" rx="2" fill="{self.paint("ink")}"'
            f' stroke="{self.paint("page")}" stroke-width="2"/>',
        ]

    def _bar_of_u(self, number: int) -> tuple[float, float, float, float]:
        """Left, top, width and height."""
        width, label = min(self.column * 0.74, 2 * self.half), self.layout.label
        return self._middle(number) - width / 2, self.verdicts + label * 0.45, width, label * 0.6

    def _count(self) -> None:
        """What the pass gave, and what the target alone would have got from it."""
        label = self.layout.label
        tokens = sum(column.gain is not None for column in self.columns)
        noun = "token" if tokens == 1 else "tokens"
        if self.narrow:
            y, size = self.layout.drafted - label * 1.1, label * 1.25
            gained = f"1 pass: +{tokens} {noun}"
            looks: dict[str, Any] = {"color": "accepted", "weight": 700, "anchor": "end"}
            lines = [self._text(self.width - 4, y, gained, size=size, **looks)]
        else:
            x = self.width - self.layout.right + label * 0.8
            y, large = (self.frame + self.pass_end) / 2, label * 1.3
            gained = f"+{tokens}"
            lines = [
                self._text(x, y - label * 2.6, "1 pass", size=large, weight=700),
                self._text(
                    x, y + label * 0.6, gained, size=label * 3.4, color="accepted", weight=800
                ),
                self._text(x, y + label * 2.1, noun, size=large, color="accepted", weight=700),
                self._text(x, y + label * 4.1, "target alone: +1", color="muted"),
            ]
        self._group("count", None, "", *lines)

    def _residual(self) -> None:
        """What the token after a rejection is drawn from, in the free columns after it."""
        at = rejected_at(self.columns)
        gain = None if at is None else self.columns[at].gain
        drawn = self.rule in ("p/q", "h", "tree")
        if at is None or gain is None or not gain.residual_top or not drawn:
            return
        label, most = self.layout.label, 3 if self.narrow else 4
        chosen = [e for e in gain.residual_top if e.token_id == gain.token_id]
        others = [e for e in gain.residual_top if e.token_id != gain.token_id]
        shown = sorted([*chosen, *others][:most], key=lambda entry: -entry.prob)
        free = len(self.columns) - 1 if self.rule == "h" else at + 1  # without bars of verdicts
        width = self.column * min(2, len(self.columns) - free) - 12
        x = self.layout.left + self.column * free + 6
        top = self.verdicts + label * 1.5
        title = "residual: max(0, p − q)" if self.rule in ("p/q", "tree") else "residual"
        if _width(title) * label * 0.72 > width:
            title = title.removeprefix("residual: ")
        lines = [self._text(x, top + label * 0.5, title, size=label * 0.82, color="resampled")]
        size = (self.gains + self.layout.height - top - label * 0.9) / most
        for number, entry in enumerate(shown):
            y = top + label * 0.9 + size * number
            row = self._chance(x, y, width, size - 2, entry, entry.token_id == gain.token_id)
            if entry.token_id == gain.token_id:
                self._group("source", at, "", *row)
            else:
                lines += row
        self._group("residual", at, "", *lines)

    def _chance(
        self, x: float, y: float, width: float, height: float, entry: TokenProb, chosen: bool
    ) -> list[str]:
        """A token of the residual with its chance, as a bar under it."""
        size, color = min(height * 0.82, self.layout.label * 0.9), self.paint("resampled")
        share, weight = min(1.0, max(0.0, entry.prob)), 700 if chosen else 400
        number, base = self._number(share), y + height * 0.78
        room = width - 8 - _width(number) * size
        text, size = _fit(visible(entry.text, LONGEST), room, size)
        looks: dict[str, Any] = {"size": size, "weight": weight, "color": "resampled"}
        return [
            f'<rect x="{x:g}" y="{y:g}" width="{max(2.0, width * share):g}" height="{height:g}"'
            f' rx="3" fill="{color}" fill-opacity="{0.42 if chosen else 0.2}"/>',
            self._text(x + 4, base, text, own=True, **looks),
            self._text(x + width - 2, base, number, anchor="end", **looks),
        ]

    def _reason(self, verdict: Event) -> str:
        """The number that decided a verdict; empty if a favourite did, or nothing."""
        accept = verdict.accept_prob
        if accept is None:
            return ""
        if verdict.threshold is not None:
            return self._equals("threshold" if self.column > 130 else "t", verdict.threshold)
        if verdict.uniform is None:
            return ""
        if self.rule == "p/q" and accept > 1 - _ROUNDING:
            return "p ≥ q"
        return self._equals("h" if self.rule == "h" else "p/q", accept)

    def _number(self, value: float) -> str:
        return rounded(value, 2 if self.tight else 3)

    def _equals(self, name: str, value: float) -> str:
        shown, between = self._number(value), " " if self.tight else " = "
        return f"{name} < {shown[1:]}" if shown.startswith("<") else f"{name}{between}{shown}"

    def _group(self, part: str, number: int | None, kind: str, *shapes: str) -> None:
        column = "" if number is None else f' data-column="{number}"'
        fate = f' data-kind="{kind}"' if kind else ""
        self.parts.append(f'<g data-part="{part}"{column}{fate}>{"".join(shapes)}</g>')

    def _words(self, x: float, y: float, text: str, **looks: object) -> None:
        self.parts.append(self._text(x, y, text, **looks))  # type: ignore[arg-type]

    def _text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 0,
        color: str = "ink",
        anchor: str = "start",
        weight: int = 400,
        own: bool = False,
        line: str = "",
    ) -> str:
        looks = f'font-size="{size or self.layout.label:g}" fill="{self.paint(color)}"'
        if anchor != "start":
            looks += f' text-anchor="{anchor}"'
        if weight != 400:
            looks += f' font-weight="{weight}"'
        looks += (' class="ns-own"' if own else "") + line
        return f'<text x="{x:g}" y="{y:g}" {looks} xml:space="preserve">{html.escape(text)}</text>'

    def _box(self, middle: float, top: float, text: str, kind: str) -> list[str]:
        """A token in its kind's colour and line style."""
        layout, style, color = self.layout, STYLES[kind], self.paint(kind)
        line = next((dashes for name, dashes in _DASHES.items() if name in style.line), "")
        dashes = f' stroke-dasharray="{line}"' if line and kind != "proposed" else ""
        half, middle_y = self.half, top + layout.height / 2
        struck = (
            [
                f'<path d="M{middle - half + 5:g} {middle_y + layout.height * 0.32:g}'
                f'L{middle + half - 5:g} {middle_y - layout.height * 0.32:g}"'
                f' stroke="{color}" stroke-width="1.5" opacity="0.65"/>'
            ]
            if "through" in style.line
            else []
        )
        halo = (
            f' paint-order="stroke" stroke="{self.paint("page")}" stroke-width="4"'
            if struck
            else ""
        )
        box = (
            f'x="{middle - half:g}" y="{top:g}" width="{2 * half:g}"'
            f' height="{layout.height:g}" rx="7"'
        )
        shown, size = _fit(text, 2 * half - 6, layout.chip)
        baseline = top + layout.height / 2 + size * 0.34
        return [
            f'<rect {box} fill="{self.paint("page")}"/>',
            f'<rect {box} fill="{color}" fill-opacity="0.13" stroke="{color}"'
            f' stroke-width="1.5"{dashes}/>',
            *struck,
            self._text(
                middle,
                baseline,
                shown,
                size=size,
                color=kind,
                anchor="middle",
                weight=600,
                own=True,
                line=halo,
            ),
        ]

    def _small(self, middle: float, top: float, text: str, kind: str) -> list[str]:
        """A candidate of a tree that is not in the window."""
        color, half, height = self.paint(kind), self.column / 2 - 6, self.slot - 4
        struck = ' text-decoration="line-through"' if kind == "rejected" else ""
        shown, size = _fit(text, 2 * half - 6, self.layout.chip * 0.76)
        return [
            f'<rect x="{middle - half:g}" y="{top:g}" width="{2 * half:g}" height="{height:g}"'
            f' rx="5" fill="{color}" fill-opacity="0.1" stroke="{color}" stroke-opacity="0.6"/>',
            self._text(
                middle,
                top + height * 0.72,
                shown,
                size=size,
                color=kind,
                anchor="middle",
                own=True,
                line=struck,
            ),
        ]


def _drafts(columns: list[Column]) -> list[Event]:
    return [column.draft for column in columns if column.draft is not None]


def _drafting(drafts: list[Event]) -> str:
    """What drafting cost, in words."""
    if not drafts:
        return "no draft tokens"
    if all(draft.forced for draft in drafts):
        return "required text"
    if drafts[0].copied_from is not None:
        return "copied, no pass"
    return f"{len(drafts)} small pass{'es' if len(drafts) > 1 else ''}"


def _width(text: str) -> float:
    """About the width of a text, in its type's size."""
    return sum(1.0 if east_asian_width(letter) in "WF" else 0.66 for letter in text)


def _fit(text: str, width: float, size: float) -> tuple[str, float]:
    """The text and its size for a width: smaller type, and if that is not enough, fewer
    letters before a mark at its end."""
    size = max(size * 0.75, min(size, width / max(1.0, _width(text))))
    if size * _width(text) <= width * 1.01:
        return text, size
    mark = text[-2:] if len(text) > 2 and text[-2] == " " else ""
    end = len(text) - len(mark)
    while end > 1 and size * _width(text[:end] + "…" + mark) > width:
        end -= 1
    return f"{text[:end]}…{mark}", size


def _inner(text: str) -> str:
    """A text inside a line: its first and last spaces are spaces."""
    return html.escape(visible(f"|{text}|", 400)[1:-1])


def _text(event: Event) -> str:
    return visible(event.text or event.token, LONGEST)


def _texts(own: list[Event], started: Event | None, step: int) -> tuple[str, str, str]:
    """The prompt, the text before the step, and what the step adds."""
    texts, words = (started.prompt_texts or [], started.prompt_words) if started else ([], None)
    prompt = started.prompt if started and started.prompt else "".join(texts)
    output = [e for e in own if e.kind in OUTPUT_KINDS and e.step is not None]
    before = "".join(e.text or "" for e in output if (e.step or 0) < step)
    new = "".join(e.text or "" for e in output if e.step == step)
    after_template = words and words[-1][1] < len(texts)
    if after_template and not (before + new)[:1].isspace():
        prompt += " "
    return prompt, before, new


def _caption(own: list[Event], started: Event | None, step: int) -> str:
    settings, models = (started.settings or {}, started.models or {}) if started else ({}, {})
    steps = sum(event.kind == EventKind.STEP for event in own)
    parts = [f"Step {step + 1} of {max(steps, step + 1)}"]
    shown = {
        name: words
        for name, words in _NAMED.items()
        if settings.get(name) not in (None, _USUAL.get(name))
    }
    parts += [f"{words}{settings[name]}".replace("_", " ") for name, words in shown.items()]
    if started is not None and started.seed is not None:
        parts.append(f"seed {started.seed}")
    parts += [f"{role}: {name}" for role, name in models.items()]
    return visible(" · ".join(parts), 400)


def rounded(value: float, digits: int) -> str:
    """A probability with so many decimals, rounded half up, as `rounded` of assets/js/format.js
    has it; one that would be 0 without being 0 is below the smallest that is not."""
    least = 10**-digits
    if 0 < value < least / 2:
        return f"<{least:.{digits}f}"
    return f"{math.floor(value / least + 0.5 + 1e-9) * least:.{digits}f}"
