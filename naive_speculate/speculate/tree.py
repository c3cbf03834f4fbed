"""Token trees: several candidates per position, drafted for one target pass (SpecInfer, Miao et
al. 2023, arXiv 2305.09781).

They are judged by recursive rejection sampling: one of the candidates is accepted, or the next
token is drawn from what is left (Jeong et al. 2024, Recursive Speculative Decoding, arXiv
2402.14160). SpecInfer's multi-step speculative sampling is the same rule for candidates that are
drawn independently.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from naive_speculate.sampling.pipeline import batch_probabilities, in_float
from naive_speculate.speculate.rules import residual
from naive_speculate.speculate.sequence import SequenceState

# of a tree: the target pass over 17 tokens costs 1.84 passes over one token on two cores
MAX_NODES = 16


def parse_tree(tree: str) -> tuple[int, ...]:
    """The children of a node by depth: "4x2x1" gives 4, 2, 1. Raises `ValueError` for any other
    form, and where `MAX_NODES` leaves no node for the last depth."""
    if not isinstance(tree, str) or not re.fullmatch(r"[1-9]\d?(x[1-9]\d?)*", tree):
        raise ValueError(
            f"tree must be numbers of children by depth, such as '4x2x1', got {tree!r:.80}"
        )
    shape, before, level = tuple(map(int, tree.split("x"))), 0, 1
    for branching in shape:
        if before >= MAX_NODES:
            raise ValueError(
                f"tree may have {MAX_NODES} nodes, got {tree!r:.80}, whose last depth would have"
                " none"
            )
        level *= branching
        before += level
    if shape[0] > MAX_NODES:
        raise ValueError(
            f"tree may have {MAX_NODES} nodes, got {tree!r:.80} with {shape[0]} at the first depth"
        )
    return shape


@dataclass
class Tree:
    """Draft tokens as a tree: a list per field, with an entry per node. A node's parent comes
    before it; the text is -1."""

    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    # what each was drawn from, given its earlier siblings, shape `[vocab_size]`: a point mass for
    # the most probable tokens
    draft_probs: list[torch.Tensor] = field(default_factory=list)
    # the drafter's distribution at its position
    model_probs: list[torch.Tensor] = field(default_factory=list)
    likelihoods: list[float] = field(default_factory=list)  # the drafter's probability of its path

    def path(self, node: int) -> list[int]:
        """The tokens from the text to a node, itself included."""
        return [] if node < 0 else [*self.path(self.parents[node]), self.token_ids[node]]

    def children(self, node: int) -> list[int]:
        """The nodes below one, in the order in which they were drawn."""
        return [child for child, parent in enumerate(self.parents) if parent == node]


class JudgedTree(NamedTuple):
    """A tree of draft tokens after its verification."""

    tree: Tree
    path: list[int]  # the accepted nodes
    # of each judged node, its acceptance probability and the draw
    verdicts: dict[int, tuple[float, float]]
    # the target's distributions after the text and after each node, shape `[1 + num_nodes,
    # vocab_size]`; None where unneeded
    probs: torch.Tensor | None


def node_scores(
    row: SequenceState, logits: torch.Tensor, paths: Sequence[list[int]]
) -> torch.Tensor:
    """Logits `[num_nodes, vocab_size]` through a row's pipeline, up to temperature; `paths`: the
    draft tokens before each."""
    scores, history = in_float(logits), row.output_token_ids
    if row.pipeline.plain:
        return scores
    return torch.cat(
        [row.pipeline.scores(scores[[index]], history + path) for index, path in enumerate(paths)]
    )


def grow(
    row: SequenceState,
    shape: Sequence[int],
    vocab_size: int,
    logits: torch.Tensor,
    read: Callable[[Tree, list[int], list[int]], torch.Tensor],
) -> Tree:
    """Draft a tree depth by depth; where the nodes do not suffice for all, the most probable
    paths are continued.

    Args:
        row: The tree's.
        shape: The children of a node by depth.
        vocab_size: Number of tokens.
        logits: The drafter's after the text, shape `[1, vocab_size or more]`.
        read: Reads some nodes of the tree and returns the logits after each, `[num_nodes,
            vocab_size or more]`. Its third argument is for all nodes read so far, these
            included: the index of each one's parent among them, -1 for the text.
    """
    tree, level, order = Tree(), [-1], {-1: -1}
    for depth, branching in enumerate(shape):
        scores = node_scores(row, logits[:, :vocab_size], [tree.path(node) for node in level])
        probs = batch_probabilities([row.pipeline], scores[None])[0][0]
        first = len(tree.token_ids)
        for index, node in enumerate(level):
            count = min(branching, MAX_NODES - len(tree.token_ids))
            for token, drawn_from in _candidates(row, scores[index], probs[index], count):
                tree.token_ids.append(token)
                tree.parents.append(node)
                tree.draft_probs.append(drawn_from)
                tree.model_probs.append(probs[index])
                tree.likelihoods.append(
                    (tree.likelihoods[node] if node >= 0 else 1.0) * float(probs[index, token])
                )
        open_ends = [
            node
            for node in range(first, len(tree.token_ids))
            if tree.token_ids[node] not in row.stop_token_ids
        ]
        left = MAX_NODES - len(tree.token_ids)
        if depth + 1 == len(shape) or not open_ends or not left:
            break
        by_likelihood = sorted(open_ends, key=lambda node: -tree.likelihoods[node])
        level = by_likelihood[: -(-left // shape[depth + 1])]
        order |= {node: len(order) - 1 + index for index, node in enumerate(level)}
        logits = read(tree, level, [order[tree.parents[node]] for node in order if node >= 0])
    return tree


def _candidates(
    row: SequenceState, scores: torch.Tensor, probs: torch.Tensor, count: int
) -> list[tuple[int, torch.Tensor]]:
    """Up to `count` children of a node, each with the distribution that it was drawn from:
    without replacement, or the most probable tokens."""
    if not row.draws_drafts:
        most = scores.topk(min(count, len(scores))).indices
        tokens = most[(scores > -torch.inf if row.greedy else probs > 0)[most]]
        return list(
            zip(
                tokens.tolist(),
                torch.nn.functional.one_hot(tokens, len(scores)).to(probs),
                strict=True,
            )
        )
    chosen, left = list[tuple[int, torch.Tensor]](), probs
    while len(chosen) < count:
        token = int(row.random.categorical(left))
        chosen.append((token, left))
        if (rest := without(left, token)) is None:
            break
        left = rest
    return chosen


class Choice(NamedTuple):
    """What is decided about the candidates for one position."""

    accepted: int | None  # the index of the accepted candidate; None if all are rejected
    # of each judged candidate: its acceptance probability, and the draw
    verdicts: list[tuple[float, float]]
    # the distribution of the next token if all are rejected, shape `[vocab_size]`
    next_probs: torch.Tensor


def choose(
    target_probs: torch.Tensor,
    candidates: Sequence[int],
    draft_probs: Sequence[torch.Tensor],
    uniform: Callable[[], float],
) -> Choice:
    """Judge candidates one after the other: x is accepted with probability min(1, p(x) / q(x));
    after a rejection p becomes ∝ max(0, p − q).

    The result is distributed as the target, whatever each q is, if the candidate was drawn from
    it given the earlier ones. So candidates may be drawn without replacement: q is then the
    draft's distribution without the earlier candidates.

    Args:
        target_probs: p, shape `[vocab_size]`.
        candidates: Token ids, in the order in which they were drawn.
        draft_probs: q of each candidate, shape `[vocab_size]`.
        uniform: Draws from [0, 1), once for each judged candidate.
    """
    p, verdicts = target_probs, list[tuple[float, float]]()
    for index, (token, q) in enumerate(zip(candidates, draft_probs, strict=True)):
        accept_prob, u = min(1.0, float(p[token] / q[token])), uniform()
        verdicts.append((accept_prob, u))
        if u < accept_prob:
            return Choice(index, verdicts, p)
        p = residual(p, q.to(p.dtype))
    return Choice(None, verdicts, p)


def without(probs: torch.Tensor, token_id: int) -> torch.Tensor | None:
    """A distribution `[vocab_size]` without a token; None if nothing else is possible."""
    rest = probs.index_fill(-1, torch.tensor([token_id], device=probs.device), 0)
    total = rest.sum()
    return rest / total if total > 0 else None
