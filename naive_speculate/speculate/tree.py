"""Token trees: several candidates per position, drafted for one target pass (SpecInfer, Miao et al. 2023, arXiv 2305.09781)."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from naive_speculate.infer.ragged_cache import TreeRows
from naive_speculate.infer.slots import Slot
from naive_speculate.sampling.distributions import batch_probabilities, in_float
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.verify.tree import without

MAX_NODES = 16  # of a tree: the target pass over 17 tokens costs 1.84 passes over one token on two cores


def parse_tree(tree: str) -> tuple[int, ...]:
    """The children of a node by depth: "4x2x1" gives 4, 2, 1. Raises `ValueError` for any other form, and where `MAX_NODES`
    leaves no node for the last depth."""
    if not isinstance(tree, str) or not re.fullmatch(r"[1-9]\d?(x[1-9]\d?)*", tree):
        raise ValueError(f"tree must be numbers of children by depth, such as '4x2x1', got {tree!r:.80}")
    shape, before, level = tuple(map(int, tree.split("x"))), 0, 1
    for branching in shape:
        if before >= MAX_NODES:
            raise ValueError(f"tree may have {MAX_NODES} nodes, got {tree!r:.80}, whose last depth would have none")
        level *= branching
        before += level
    if shape[0] > MAX_NODES:
        raise ValueError(f"tree may have {MAX_NODES} nodes, got {tree!r:.80} with {shape[0]} at the first depth")
    return shape


@dataclass
class Tree:
    """Draft tokens as a tree: a list per field, with an entry per node. A node's parent comes before it; the text is -1."""

    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    # what each was drawn from, given its earlier siblings, shape `[vocab_size]`: a point mass for the most probable tokens,
    # unread under greedy decoding
    draft_probs: list[torch.Tensor] = field(default_factory=list)
    model_probs: list[torch.Tensor] = field(default_factory=list)  # the drafter's distribution at its position
    likelihoods: list[float] = field(default_factory=list)  # the drafter's probability of its path

    def path(self, node: int) -> list[int]:
        """The tokens from the text to a node, itself included."""
        return [] if node < 0 else [*self.path(self.parents[node]), self.token_ids[node]]

    def children(self, node: int) -> list[int]:
        """The nodes below one, in the order in which they were drawn."""
        return [child for child, parent in enumerate(self.parents) if parent == node]


class TreeSlot:
    """The nodes of a tree that a drafter's model has read, after the text in a slot of its cache."""

    def __init__(self, slot: Slot) -> None:
        self._slot, self._trunk = slot, slot.num_tokens
        self._nodes: list[int] = []

    def rows(self, tree: Tree, nodes: Sequence[int]) -> TreeRows:
        """The cache for a forward over more nodes."""
        self._nodes += nodes
        at = {-1: -1} | {node: index for index, node in enumerate(self._nodes)}
        parents = [at[tree.parents[node]] for node in self._nodes]
        return TreeRows(self._slot.cache, self._slot.row, self._trunk, parents)  # type: ignore[arg-type]

    def keep(self, path: Sequence[int]) -> None:
        """Roll back to the text and those nodes of an accepted path that were read."""
        kept = [self._trunk + self._nodes.index(node) for node in path if node in self._nodes]
        self._slot.cache.keep_path(self._slot.row, self._trunk, kept)  # type: ignore[attr-defined]


def node_scores(row: SequenceState, logits: torch.Tensor, paths: Sequence[list[int]]) -> torch.Tensor:
    """Logits `[num_nodes, vocab_size]` through a row's pipeline, up to temperature; `paths`: the draft tokens before each."""
    scores, history = in_float(logits), row.output_token_ids
    if row.pipeline.plain:
        return scores
    return torch.cat([row.pipeline.scores(scores[[index]], history + path) for index, path in enumerate(paths)])


def grow(
    row: SequenceState,
    shape: Sequence[int],
    vocab_size: int,
    logits: torch.Tensor,
    read: Callable[[Tree, list[int]], torch.Tensor],
) -> Tree:
    """Draft a tree depth by depth. `logits`: the drafter's after the text, shape `[1, vocab_size or more]`; `read`: gives those
    after nodes, shape `[num_nodes, vocab_size or more]`. Where the nodes do not suffice for all, the most probable paths are
    continued."""
    tree, level = Tree(), [-1]
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
                tree.likelihoods.append((tree.likelihoods[node] if node >= 0 else 1.0) * float(probs[index, token]))
        open_ends = [node for node in range(first, len(tree.token_ids)) if tree.token_ids[node] not in row.stop_token_ids]
        left = MAX_NODES - len(tree.token_ids)
        if depth + 1 == len(shape) or not open_ends or not left:
            break
        by_likelihood = sorted(open_ends, key=lambda node: -tree.likelihoods[node])
        level = by_likelihood[: -(-left // shape[depth + 1])]
        logits = read(tree, level)
    return tree


def _candidates(row: SequenceState, scores: torch.Tensor, probs: torch.Tensor, count: int) -> list[tuple[int, torch.Tensor]]:
    """Up to `count` children of a node, each with the distribution that it was drawn from: without replacement, or the most
    probable tokens."""
    if not row.draws_drafts:
        best = scores.topk(min(count, len(scores)))
        tokens = [token for token, score in zip(*(each.tolist() for each in best[::-1]), strict=True) if score > -torch.inf]
        if row.greedy:  # nothing is drawn, so that nothing reads the distributions
            return [(token, probs) for token in tokens]
        tokens = [token for token in tokens if probs[token] > 0]
        points = torch.nn.functional.one_hot(torch.tensor(tokens, dtype=torch.int64), len(scores)).to(probs)
        return list(zip(tokens, points, strict=True))
    found, left = list[tuple[int, torch.Tensor]](), probs
    while len(found) < count:
        token = int(row.random.categorical(left))
        found.append((token, left))
        if (rest := without(left, token)) is None:
            break
        left = rest
    return found
