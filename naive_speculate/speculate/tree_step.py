"""A step with a token tree: one target pass over all nodes, then a walk along accepted ones.

Its result has the form of a step with a window, so that everything after it is the same: the window is the accepted path,
continued by first children.
"""

from typing import Protocol

import torch

from naive_speculate.events.event import TreeNode
from naive_speculate.infer.device import on_device
from naive_speculate.sampling.distributions import batch_probabilities
from naive_speculate.speculate.draft.proposal import Proposal
from naive_speculate.speculate.judge import Distributions, draw
from naive_speculate.speculate.rules import Verdict, count_leading
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.step import JudgedTree, Models, Step, step
from naive_speculate.speculate.tree import Tree, node_scores
from naive_speculate.speculate.verify.tree import choose
from naive_speculate.text import Vocabulary


class TreeModels(Models, Protocol):
    """The models of a step with a tree; a `Batch` has them."""

    def propose_tree(self, row: SequenceState) -> Tree | None:
        """See `Batch.propose_tree`."""
        ...

    def score_tree(self, row: SequenceState, tree: Tree) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `Batch.score_tree`."""
        ...

    def keep_path(self, row: SequenceState, path: list[int]) -> None:
        """See `Batch.keep_path`."""
        ...


def tree_step(models: TreeModels, row: SequenceState) -> Step:
    """Make one step for a row that drafts trees; one with a window where no tree can be drafted."""
    tree = models.propose_tree(row)
    if tree is None:
        return step(models, [row])
    logits, features = models.score_tree(row, tree)  # index 0 follows the text, index n + 1 node n
    scores = node_scores(row, logits[0], [tree.path(node) for node in range(-1, len(tree.token_ids))])
    if row.needs_probs:
        probs, usable = (each[0] for each in batch_probabilities([row.pipeline], scores[None]))
    else:
        probs, usable = None, scores.amax(dim=-1).isfinite()
    judged, next_probs = _walk(row, tree, scores, probs, usable.tolist())
    models.keep_path(row, judged.path)
    window, device = list(judged.path), scores.device
    while children := tree.children(window[-1] if window else -1):
        window.append(children[0])
    at = on_device([0, *(node + 1 for node in window)], device)
    p = Distributions(scores[at][None], None if probs is None else probs[at][None], count_leading(usable[at])[None])
    q = None if probs is None else torch.stack([tree.model_probs[node] for node in window])[None]
    draft = Proposal.of_model([row], on_device([[tree.token_ids[node] for node in window]], device), q, [len(window)])
    verdicts = torch.tensor([judged.verdicts.get(node, (0.0, 0.0)) for node in window], dtype=torch.float64)
    accept_probs = verdicts[None, :, 0].to(device, scores.dtype)
    r = verdicts[None, :, 1].to(device, torch.float32 if device.type == "mps" else torch.float64)  # MPS has no float64
    best = scores[at[len(judged.path)]].argmax(dim=-1)[None] if row.greedy else None
    chosen = None if next_probs is None else next_probs[None]
    verdict = Verdict(on_device([len(judged.path)], device), chosen, best, accept_probs)
    states = None if features is None else features[:, at]
    return Step(draft, logits[:, at], states, p, r, verdict, draw([row], verdict), judged)


def _walk(
    row: SequenceState, tree: Tree, scores: torch.Tensor, probs: torch.Tensor | None, usable: list[bool]
) -> tuple[JudgedTree, torch.Tensor | None]:
    """Go down the tree as long as a child is accepted, and there is a distribution to judge by. Returns the judged tree, and
    the distribution of the next token, shape `[vocab_size]`; None under greedy decoding."""
    node, path, verdicts = -1, list[int](), dict[int, tuple[float, float]]()
    best = scores.argmax(dim=-1).tolist() if row.greedy else []
    while True:
        children = tree.children(node) if usable[node + 1] else []
        tokens = [tree.token_ids[child] for child in children]
        if row.greedy:
            accepted, rest = tokens.index(best[node + 1]) if best[node + 1] in tokens else None, None
            judged = [(float(token == best[node + 1]), 0.0) for token in tokens[: None if accepted is None else accepted + 1]]
        else:
            assert probs is not None
            draft_probs = [tree.draft_probs[child] for child in children]
            accepted, judged, rest = choose(probs[node + 1], tokens, draft_probs, row.random.uniform)
        verdicts |= dict(zip(children, judged, strict=False))
        if accepted is None:
            return JudgedTree(tree, path, verdicts, probs), rest
        node = children[accepted]
        path.append(node)


def tree_nodes(row: SequenceState, judged: JudgedTree, vocabulary: Vocabulary) -> list[TreeNode]:
    """A tree as events have it; probabilities where they were requested."""
    tree, probs = judged.tree, judged.probs if row.detail != "none" else None
    nodes = []
    for index, (token, parent) in enumerate(zip(tree.token_ids, tree.parents, strict=True)):
        kind = "accepted" if index in judged.path else "rejected" if index in judged.verdicts else "discarded"
        node = TreeNode(token, vocabulary.text_of(token), parent, kind)  # type: ignore[arg-type]
        if probs is not None:
            node.draft_prob, node.target_prob = float(tree.model_probs[index][token]), float(probs[parent + 1, token])
            if index in judged.verdicts:
                node.accept_prob, uniform = judged.verdicts[index]
                node.uniform = None if row.greedy else uniform
        nodes.append(node)
    return nodes
