"""The rule of trees, recursive rejection sampling: its output distribution is the target's, by exact enumeration."""

from itertools import permutations

import pytest
import torch

from naive_speculate import SamplingParams
from naive_speculate.sampling.pipeline import LogitsPipeline
from naive_speculate.speculate.tree import choose, without

PARAMS = {
    "plain": SamplingParams(),
    "warped": SamplingParams(temperature=0.7, top_p=0.9),
    "greedy": SamplingParams(temperature=0),
}


def distributions(name, size, seed):
    """The target's and the draft's; some tokens are impossible for one of them. Greedy is the limit of low temperatures."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, size, generator=generator, dtype=torch.float64) * 2
    if seed % 2:
        logits[0, 1], logits[1, 0] = -torch.inf, -torch.inf
    probs = LogitsPipeline(PARAMS[name], [], size).probabilities(logits)
    return torch.nn.functional.one_hot(probs.argmax(dim=-1), size).double() if name == "greedy" else probs


def output(p, candidates, dists):
    """The distribution of the output, given the candidates, over all draws of `choose`."""
    found, reached = torch.zeros_like(p), 1.0
    for index, token in enumerate(candidates):
        draws = iter([1.0] * index + [0.0] + [1.0] * len(candidates))  # the one at `index` is accepted, if it can be
        accept_prob = choose(p, candidates, dists, lambda draws=draws: next(draws)).verdicts[index][0]
        found[token] += reached * accept_prob
        reached *= 1 - accept_prob
    last = choose(p, candidates, dists, lambda: 1.0)
    assert last.accepted is None
    return found + reached * last.next_probs


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_candidates_drawn_without_replacement_leave_the_target_s_distribution(name, count):
    for seed in range(4):
        p, q = distributions(name, 4, seed)
        total, mass = torch.zeros_like(p), 0.0
        drawn = min(count, int((q > 0).sum()))  # then no other is possible
        for candidates in permutations(range(4), drawn):
            probability, dists, left = 1.0, [], q
            for token in candidates:
                dists.append(left)
                probability *= 0.0 if left is None else float(left[token])
                left = None if left is None else without(left, token)
            if probability:
                total += probability * output(p, candidates, dists)
                mass += probability
        assert mass == pytest.approx(1)
        assert (total - p).abs().max() < 1e-12


def test_certain_candidates_leave_it_too():
    """Those of draft_sampling="argmax": point masses."""
    for seed in range(4):
        p, q = distributions("plain", 4, seed)
        best = q.topk(3).indices.tolist()
        points = [torch.nn.functional.one_hot(torch.tensor(token), 4).double() for token in best]
        assert (output(p, best, points) - p).abs().max() < 1e-12


def test_the_undiminished_draft_distribution_would_be_wrong():
    """What the enumeration is for: judging a second candidate as if it could have been the first is not lossless."""
    p, q = distributions("plain", 4, 2)
    total = torch.zeros_like(p)
    for first, second in permutations(range(4), 2):
        total += float(q[first] * q[second] / (1 - q[first])) * output(p, [first, second], [q, q])
    assert (total - p).abs().max() > 1e-3
