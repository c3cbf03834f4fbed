"""The columns of a step: what drafter and target gave at each index of its window, how the token
there was judged, and what the text gains. The page answers "what if" from nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from naive_speculate.events.event import Event, EventKind, TokenProb, TreeNode
from naive_speculate.events.steps import Step
from naive_speculate.text import visible

MOST_COLUMNS = 64  # a trace may claim longer windows, and deeper trees
LONGEST = 20  # characters of a token
LIKELY = 5  # tokens of both distributions that a column lists
_SAME = 1e-3  # p/q and a recorded acceptance that differ by less are one number


@dataclass
class Column:
    """An index of the window: its draft token, the verdict, what the text gains, the target's
    most probable tokens where an unused bonus would stand, and further candidates of a tree, each
    with the place of its parent: column and slot."""

    draft: Event | None = None
    verdict: Event | None = None
    gain: Event | None = None
    unused: Sequence[TokenProb] = ()
    siblings: list[tuple[TreeNode, tuple[int, int] | None]] = field(default_factory=list)

    @property
    def p(self) -> float | None:
        """The target's probability of the draft token, else of the token that stands here."""
        if self.draft is None:
            own = self.unused[0].prob if self.unused else None
            return self.gain.target_prob if self.gain is not None else own
        judged = None if self.verdict is None else self.verdict.target_prob
        return self.draft.target_prob if judged is None else judged

    @property
    def q(self) -> float | None:
        return None if self.draft is None else self.draft.draft_prob

    @property
    def accept(self) -> float | None:
        """The probability of acceptance; of a token that was not judged, min(1, p/q)."""
        known = None if self.verdict is None else self.verdict.accept_prob
        if known is not None or self.p is None or not self.q:
            return known
        return min(1.0, self.p / self.q)

    def likely(self) -> list[tuple[int, str, float | None, float | None]]:
        """The most probable tokens of both distributions, with the draft token and the one that
        replaces it: id, text, p, q."""
        scored = next(
            (e for e in (self.verdict, self.draft, self.gain) if e and e.target_top), None
        )
        target = list(scored.target_top or ()) if scored is not None else list(self.unused)
        draft = list(self.draft.draft_top or ()) if self.draft is not None else []
        p, q = ({entry.token_id: entry.prob for entry in top} for top in (target, draft))
        if scored is not None:
            q |= zip(p, scored.target_top_draft or (), strict=False)
            p |= {
                entry.token_id: prob
                for entry, prob in zip(draft, scored.draft_top_target or (), strict=False)
            }
        texts = {entry.token_id: entry.text for entry in (*draft, *target)}
        held = [event for event in (self.draft, self.gain) if event is not None]
        for event in held:
            texts[event.token_id or 0] = event.text or event.token or ""
            p.setdefault(event.token_id or 0, event.target_prob or 0.0)
        if self.draft is not None and self.q is not None:
            q.setdefault(self.draft.token_id or 0, self.q)
            p[self.draft.token_id or 0] = self.p or 0.0
        ids = sorted(texts, key=lambda each: -max(p.get(each, 0.0), q.get(each, 0.0)))
        ids.sort(key=lambda each: not any(each == event.token_id for event in held))
        shown = sorted(ids[:LIKELY], key=lambda each: -max(p.get(each, 0.0), q.get(each, 0.0)))
        return [(each, visible(texts[each], LONGEST), p.get(each), q.get(each)) for each in shown]

    def facts(self) -> dict[str, Any]:
        """What the page says about the column, and what it needs to judge it with another u."""
        event = self.draft or self.gain
        token, added = (
            event and visible(event.text or event.token, LONGEST),
            self.gain if self.gain is not None and self.gain is not self.verdict else None,
        )
        facts = {
            "text": token,
            "adds": event and (event.text or ""),
            "q": self.q,
            "p": self.p,
            "u": None if self.verdict is None else self.verdict.uniform,
            "accept": self.accept,
            "kind": str(self.verdict.kind) if self.verdict is not None else None,
            "own": None if self.draft is None else self.draft.token_id,
            "new": added and [str(added.kind), added.token_id, visible(added.text, LONGEST)],
            "likely": [
                [name, *(None if value is None else round(value, 6) for value in pq), each]
                for each, name, *pq in self.likely()
            ],
        }
        return {name: value for name, value in facts.items() if value is not None}


def columns_of(step: Step) -> list[Column]:
    """Of a step's tokens; the last one is for the bonus, if there can be one."""
    drafts, end, new = step.drafts[:MOST_COLUMNS], step.end, step.added
    columns = [Column(draft, step.verdict(draft.index)) for draft in drafts]
    for column in columns:
        if column.verdict is not None and column.verdict.kind == EventKind.ACCEPTED:
            column.gain = column.verdict
    _add_tree(columns, drafts, list(end.tree or ()) if end is not None else [])
    columns.append(Column())
    if len(columns) == len(drafts) + 1 and end is not None:
        columns[-1].unused = end.target_top or ()
    if new is not None:
        at = rejected_at(columns)
        resampled = new.kind == EventKind.RESAMPLED and at is not None
        columns[at if resampled and at is not None else len(drafts)].gain = new
    return columns


def rejected_at(columns: Sequence[Column]) -> int | None:
    """The index of the rejected draft token."""
    kinds = [column.verdict and column.verdict.kind for column in columns]
    return kinds.index(EventKind.REJECTED) if EventKind.REJECTED in kinds else None


def rule_of(columns: Sequence[Column], strategy: str | None = None) -> str:
    """How the step's tokens were judged: by a draw below "p/q" or "h", by a "threshold", by the
    target's own draw ("match") or its favourite ("greedy"); "tree"; or not at all, "plain"."""
    judged = [
        (column, column.verdict)
        for column in columns
        if column.verdict is not None and column.verdict.accept_prob is not None
    ]
    if any(column.siblings for column in columns):
        return "tree"
    if not judged:
        return "plain"
    if any(verdict.threshold is not None for _, verdict in judged):
        return "threshold"
    if any(verdict.uniform is not None for _, verdict in judged):
        ratios = [
            (min(1.0, column.p / column.q), verdict.accept_prob or 0.0)
            for column, verdict in judged
            if column.p is not None and column.q
        ]
        apart = len(ratios) < len(judged) or any(abs(a - b) > _SAME for a, b in ratios)
        return "h" if strategy == "block_verification" or (strategy is None and apart) else "p/q"
    drawn = any(0 < (verdict.accept_prob or 0.0) < 1 for _, verdict in judged)
    return "match" if strategy == "sample_match" or drawn else "greedy"


def _add_tree(columns: list[Column], drafts: list[Event], tree: list[TreeNode]) -> None:
    """Adds the candidates of a tree that are not in the window, which is one path through it."""
    places: dict[int, tuple[int, int]] = {}  # of each node: column and slot
    path = -1
    for number, node in enumerate(tree):
        depth = places[node.parent][0] + 1 if node.parent in places else 0
        if depth >= MOST_COLUMNS:
            break
        while len(columns) <= depth:
            columns.append(Column())
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


_NO_U = "Nothing is drawn, so there is no u to drag: a draft token is accepted if"
_FATES = {
    "p/q": (
        "u is a random number from 0 to 1. Accepted: u is below p/q. The first rejection discards"
        " the rest."
    ),
    "h": (
        "u is a random number from 0 to 1. The last column whose u is below h is accepted, with"
        " all before it."
    ),
    "threshold": f"{_NO_U} p is above the threshold, the mark on its bar.",
    "match": f"{_NO_U} it is the target’s own draw.",
    "greedy": f"{_NO_U} it is the target’s favourite.",
    "tree": "The candidates of a column are judged one after the other.",
    "plain": "There is nothing to judge.",
}


def captions(columns: Sequence[Column], rule: str) -> list[str]:
    """What happens in each phase of a step, in a sentence or two."""
    drafts = [column.draft for column in columns if column.draft is not None]
    gains = sum(column.gain is not None for column in columns)
    copied = bool(drafts) and drafts[0].copied_from is not None
    proposes = "copies them from the text" if copied else "proposes them"
    first = f"The drafter {proposes}, one after the other. q: its probability of each."
    if not drafts:
        first = "Without drafts there is only the target."
    own = "The target’s pass gives one token of its own."
    at = rejected_at(columns)
    if at is not None and columns[at].gain is not None:
        own = "The target replaces the rejected token by its own favourite."
        if rule in ("p/q", "tree"):
            own = (
                "The target replaces the rejected token. The residual max(0, p − q), where p is"
                " above q, has the chances."
            )
        elif rule not in ("greedy", "threshold"):
            own = "The target replaces the rejected token by its own draw."
    elif drafts and at is None:
        own = "All are accepted, so the same pass gives one more token: the bonus."
    noun = "token" if gains == 1 else "tokens"
    return [
        first,
        "One pass of the target scores all columns at once. p: its probability of the same token.",
        _FATES[rule],
        own,
        f"{gains} {noun} from one target pass. Alone, the target writes one token per pass.",
    ]
