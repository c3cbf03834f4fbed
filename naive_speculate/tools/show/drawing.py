"""One step as an SVG drawing: a small drafter, a large target, and a column per draft token.

The page's stage, the lessons and the file for a slide are this drawing. Its parts have names
(`data-part`), by which `assets/js/machine.js` moves them in the order in which they happened.
"""

import html
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from textwrap import wrap
from unicodedata import east_asian_width

from naive_speculate.events.event import (
    OUTPUT_KINDS,
    TARGET_KINDS,
    TOKEN_KINDS,
    Event,
    EventKind,
    TreeNode,
)
from naive_speculate.events.steps import Step
from naive_speculate.text import visible
from naive_speculate.tools.show.palette import LIGHT, STYLES

Paint = Callable[[str], str]
"""From the name of a kind or of a ground, such as `accepted` or `ink`, to a colour."""

_FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
_LONGEST, _MOST_SIBLINGS = 20, 7
_MOST_COLUMNS = 64  # a trace may claim longer windows, and deeper trees
_NAMED = {
    "verify_strategy": "",
    "num_draft_tokens": "k = ",
    "temperature": "temperature ",
    "top_p": "top-p ",
    "drafter": "drafter ",
}
_USUAL = {"top_p": 1.0, "drafter": "model"}  # defaults, not shown
_DASHES = {"dotted": "1.5 2.5", "dashed": "5 3"}


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
    columns = _columns(Step(step, [*tokens, *end]))
    drawing = _Drawing(LAYOUTS[layout], paint or _on_white, columns)
    drawing.fill(*_texts(own, started, step))
    if paint is None:
        drawing.caption(_caption(own, started, step))
    return drawing.svg(step, ground=paint is None)


def _on_white(name: str) -> str:
    return STYLES[name].light if name in STYLES else str(getattr(LIGHT, name))


@dataclass
class _Column:
    """A position of the window: its draft token, the verdict, what the text gains, and further
    candidates of a tree, each with the place of its parent: column and slot."""

    draft: Event | None = None
    verdict: Event | None = None
    gain: Event | None = None
    siblings: list[tuple[TreeNode, tuple[int, int] | None]] = field(default_factory=list)

    @property
    def judged(self) -> Event | None:
        """The verdict, unless the token was discarded without one, or the target's own token."""
        verdict = self.verdict
        if verdict is not None and (
            verdict.kind != EventKind.DISCARDED or verdict.accept_prob is not None
        ):
            return verdict
        return self.gain if self.draft is None else None


def _columns(step: Step) -> list[_Column]:
    """Of a step's tokens; the last one is for the bonus, if there can be one."""
    drafts, end, new = step.drafts[:_MOST_COLUMNS], step.end, step.added
    columns = [_Column(draft, step.verdict(draft.index)) for draft in drafts]
    for column in columns:
        if column.verdict is not None and column.verdict.kind == EventKind.ACCEPTED:
            column.gain = column.verdict
    _add_tree(columns, drafts, list(end.tree or ()) if end is not None else [])
    columns.append(_Column())
    if new is not None:
        rejected = [
            n for n, c in enumerate(columns) if c.verdict and c.verdict.kind == EventKind.REJECTED
        ]
        resampled = new.kind == EventKind.RESAMPLED and bool(rejected)
        columns[rejected[0] if resampled else len(drafts)].gain = new
    return columns


def _add_tree(columns: list[_Column], drafts: list[Event], tree: list[TreeNode]) -> None:
    """Adds the candidates of a tree that are not in the window, which is one path through it."""
    places: dict[int, tuple[int, int]] = {}  # of each node: column and slot
    path = -1
    for number, node in enumerate(tree):
        depth = places[node.parent][0] + 1 if node.parent in places else 0
        if depth >= _MOST_COLUMNS:
            break
        while len(columns) <= depth:
            columns.append(_Column())
        siblings = columns[depth].siblings
        if (
            depth < len(drafts)
            and node.parent == path
            and node.token_id == drafts[depth].token_id
            and (depth, 0) not in places.values()
        ):
            path, places[number] = number, (depth, 0)
        else:
            siblings.append((node, places.get(node.parent)))
            places[number] = (depth, len(siblings))


class _Drawing:
    """Collects the shapes of a drawing."""

    def __init__(self, layout: Layout, paint: Paint, columns: list[_Column]) -> None:
        self.layout, self.paint, self.columns = layout, paint, columns
        inner = layout.width - layout.left - layout.right
        self.column = min(max(layout.least, inner / len(columns)), inner / 4)
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
        self.height = self.gains + layout.height + label * (5.2 if self.narrow else 1.9)
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
        self._count()

    def caption(self, text: str) -> None:
        size = self.layout.label
        for line in wrap(text, int((self.width - 40) / size / 0.52)):
            self.height += size * 1.4
            self._words(12, self.height - size, line, color="muted")

    def svg(self, step: int, *, ground: bool) -> str:
        name = next(name for name, layout in LAYOUTS.items() if layout is self.layout)
        box = f'data-layout="{name}" viewBox="0 0 {self.width:g} {self.height:g}"'
        looks = f'{box} font-family="{_FONT}" role="img"'
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
            spans = ((prompt, "muted"), (before, "accepted"), (more, "accepted"), ("▏", "bonus"))
            shown = "".join(
                f'<tspan fill="{self.paint(color)}">{_inner(text)}</tspan>'
                for text, color in spans
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
            if name == "drafter" and not drafts:
                fill = f'fill="none" stroke="{self.paint("rule")}" stroke-width="2"'
            self.parts.append(
                f'<rect data-part="{name}" x="{x:g}" y="{top:g}" width="{side:g}"'
                f' height="{side:g}" rx="{side / 8:g}" {fill}/>'
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
                y = self.verdicts + label * (0.4 if self._drawn else 1.4)
                self._words(10, y, "verdict", color="muted", weight=600)
            y = self.gains + layout.height / 2 + label / 3
            self._words(10, y, "text gains", color="muted", weight=600)
        if self._drawn:
            self._legend()

    @property
    def _drawn(self) -> bool:
        """Whether a verdict of this step is a draw."""
        return any(c.verdict and c.verdict.uniform is not None for c in self.columns)

    def _legend(self) -> None:
        """What the mark on a verdict's bar is."""
        label, lines = self.layout.label, ["▮ u: random, from 0 to 1", "in the green: accepted"]
        x, y = 10.0, self.verdicts + label * 1.6
        if self.narrow:
            x, y, lines = 0.0, self.height - label * 2.7, ["; ".join(lines)]
        size, steps = label * 0.87, enumerate(lines)
        texts = [self._text(x, y + n * label * 1.2, t, size=size, color="muted") for n, t in steps]
        self._group("legend", None, "", *texts)

    def _middle(self, number: int) -> float:
        return self.layout.left + self.column * (number + 0.5)

    def _window(self, number: int) -> None:
        """The draft token of a column, its siblings in a tree, and its q."""
        column, top = self.columns[number], self.layout.drafted
        middle = self._middle(number)
        if column.draft is not None:
            with_box = self._box(middle, top, _text(column.draft), "proposed")
            self._group("draft", number, "proposed", *with_box)
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
        x, half = self._middle(number), self.column / 2 - 6
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
        for number, column in enumerate(self.columns):
            judged = column.judged
            self._bar("p", number, judged.target_prob if judged is not None else None)

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
        center, shown = x + width / 2, self._short(_number(value))
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
        event = column.draft or column.gain
        if event is not None:
            half = self.column / 2 - 2
            self.parts.append(
                f'<rect class="ns-column" data-step="{event.step}" data-index="{event.index or 0}"'
                f' x="{middle - half:g}" y="{layout.drafted - 4:g}" width="{2 * half:g}"'
                f' height="{self.height - layout.drafted - 2:g}" rx="8" fill="transparent"/>'
            )

    def _verdict(self, middle: float, number: int, verdict: Event) -> list[str]:
        """Why: the number with the draw on a bar of 1, or the target's favourite; and the fate."""
        label, y = self.layout.label, self.verdicts
        parts = list[str]()
        accept, u, fate = verdict.accept_prob, verdict.uniform, STYLES[verdict.kind]
        favourite = verdict if verdict.kind == EventKind.ACCEPTED else self.columns[number].gain
        reason = self._short(_reason(verdict))
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
            parts += self._odds(middle, y + label * 0.45, min(1.0, max(0.0, accept)), u)
            parts.append(
                self._text(
                    middle,
                    y + label * 2.15,
                    self._short(_equals("u", u)),
                    size=label * 0.9,
                    anchor="middle",
                )
            )
        name = fate.mark if self.tight else f"{fate.mark} {fate.label}"
        at = y + label * (3.3 if accept is not None else 0.6)
        parts.append(self._text(middle, at, name, color=verdict.kind, weight=600, anchor="middle"))
        return parts

    def _odds(self, middle: float, top: float, accept: float, u: float) -> list[str]:
        """A bar of width 1, green up to the probability of acceptance, and the draw on it."""
        width, height = self.column * 0.74, self.layout.label * 0.6
        x = middle - width / 2
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

    def _count(self) -> None:
        """What the pass gave, and what the target alone would have got from it."""
        label = self.layout.label
        tokens = sum(column.gain is not None for column in self.columns)
        noun = "token" if tokens == 1 else "tokens"
        if self.narrow:
            y, gained = self.height - label * 0.8, f"1 pass: +{tokens} {noun}"
            lines = [
                self._text(0, y, gained, size=label * 1.5, color="accepted", weight=700),
                self._text(self.width, y, "target alone: +1", color="muted", anchor="end"),
            ]
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

    def _short(self, words: str) -> str:
        """Of "p/q = 0.549" in a narrow column the first two digits."""
        return words[:-1].replace("= ", "") if self.tight and words[-4:-3] == "." else words

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
        struck = ' text-decoration="line-through"' if "through" in style.line else ""
        half = self.column / 2 - (3 if self.narrow else 6)
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
            self._text(
                middle,
                baseline,
                shown,
                size=size,
                color=kind,
                anchor="middle",
                weight=600,
                own=True,
                line=struck,
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


def _drafts(columns: list[_Column]) -> list[Event]:
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
    return visible(event.text or event.token, _LONGEST)


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


def _reason(verdict: Event) -> str:
    """The number that decided a verdict; empty if a favourite did, or nothing."""
    accept = verdict.accept_prob
    if accept is None:
        return ""
    if verdict.threshold is not None:
        return _equals("threshold", verdict.threshold)
    if verdict.uniform is None:
        return ""
    q, p = verdict.draft_prob, verdict.target_prob
    ratio = p / q if p is not None and q else None
    name = "p/q" if ratio is not None and abs(min(1.0, ratio) - accept) < 1e-3 else "h"
    return "p ≥ q" if name == "p/q" and accept >= 1 else _equals(name, accept)


def _number(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0005 or value == 0 else "<0.001"


def _equals(name: str, value: float) -> str:
    shown = _number(value)
    return f"{name} < {shown[1:]}" if shown.startswith("<") else f"{name} = {shown}"
