"""A step with a token tree after its one target pass over all nodes: a walk along accepted ones.

Its result has the form of a step with a window, so that everything after it is the same: the
window is the accepted path, continued by first children.
"""

import torch

from naive_speculate.events.event import TreeNode
from naive_speculate.infer.device import on_device
from naive_speculate.sampling.pipeline import batch_probabilities
from naive_speculate.speculate.draft.proposal import Proposal
from naive_speculate.speculate.rules import Verdict, count_leading
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.step import Distributions, Step, draw_next
from naive_speculate.speculate.tree import JudgedTree, Tree, choose, node_scores
from naive_speculate.text import Vocabulary


def tree_step(
    row: SequenceState, tree: Tree, logits: torch.Tensor, features: torch.Tensor | None
) -> Step:
    """The rest of a step whose tree was drafted and scored: index 0 of `logits` `[1, 1 +
    num_nodes, vocab_size]` and `features` follows the text, index n + 1 node n."""
    scores, device = (
        node_scores(row, logits[0], [tree.path(node) for node in range(-1, len(tree.token_ids))]),
        logits.device,
    )
    if row.needs_probs:
        probs, usable = (each[0] for each in batch_probabilities([row.pipeline], scores[None]))
    else:
        probs, usable = None, scores.amax(dim=-1).isfinite()
    judged, next_probs = _walk(row, tree, scores, probs, usable.tolist())
    window = list(judged.path)
    while children := tree.children(window[-1] if window else -1):
        window.append(children[0])
    at = on_device([0, *(node + 1 for node in window)], device)
    p = Distributions(
        scores[at][None],
        None if probs is None else probs[at][None],
        count_leading(usable[at])[None],
    )
    q = None if probs is None else torch.stack([tree.model_probs[node] for node in window])[None]
    draft = Proposal.of_model(
        [row], on_device([[tree.token_ids[node] for node in window]], device), q, [len(window)]
    )
    verdicts = torch.tensor(
        [judged.verdicts.get(node, (0.0, 0.0)) for node in window], dtype=torch.float64
    )
    accept_probs = verdicts[None, :, 0].to(device, scores.dtype)
    # MPS has no float64
    r = verdicts[None, :, 1].to(device, torch.float32 if device.type == "mps" else torch.float64)
    drawn_from, best = (None, next_probs.argmax()[None]) if row.greedy else (next_probs[None], None)
    verdict = Verdict(on_device([len(judged.path)], device), drawn_from, best, accept_probs)
    states = None if features is None else features[:, at]
    return Step(draft, logits[:, at], states, p, r, verdict, draw_next([row], verdict), judged)


def _walk(
    row: SequenceState,
    tree: Tree,
    scores: torch.Tensor,
    probs: torch.Tensor | None,
    usable: list[bool],
) -> tuple[JudgedTree, torch.Tensor]:
    """Go down the tree as long as a child is accepted, and there is a distribution to judge by.
    Returns the judged tree, and the distribution of the next token, shape `[vocab_size]`; under
    greedy decoding all distributions are point masses."""
    node, path, verdicts = -1, list[int](), dict[int, tuple[float, float]]()
    certain = torch.nn.functional.one_hot(scores.argmax(dim=-1), scores.shape[-1]).to(scores)
    target = certain if row.greedy or probs is None else probs
    while True:
        children = tree.children(node) if usable[node + 1] else []
        tokens, draft_probs = (
            [tree.token_ids[child] for child in children],
            [tree.draft_probs[child] for child in children],
        )
        choice = choose(
            target[node + 1],
            tokens,
            draft_probs,
            (lambda: 0.0) if row.greedy else row.random.uniform,
        )
        verdicts |= dict(zip(children, choice.verdicts, strict=False))
        if choice.accepted is None:
            return JudgedTree(tree, path, verdicts, probs), choice.next_probs
        node = children[choice.accepted]
        path.append(node)


def tree_nodes(row: SequenceState, judged: JudgedTree, vocabulary: Vocabulary) -> list[TreeNode]:
    """A tree as events have it; probabilities where they were requested."""
    tree, probs = judged.tree, judged.probs if row.detail != "none" else None
    nodes = []
    for index, (token, parent) in enumerate(zip(tree.token_ids, tree.parents, strict=True)):
        kind = (
            "accepted"
            if index in judged.path
            else "rejected"
            if index in judged.verdicts
            else "discarded"
        )
        node = TreeNode(token, vocabulary.text_of(token), parent, kind)  # type: ignore[arg-type]
        if probs is not None:
            node.draft_prob, node.target_prob = (
                float(tree.model_probs[index][token]),
                float(probs[parent + 1, token]),
            )
            if index in judged.verdicts:
                node.accept_prob, uniform = judged.verdicts[index]
                node.uniform = None if row.greedy else uniform
        nodes.append(node)
    return nodes
