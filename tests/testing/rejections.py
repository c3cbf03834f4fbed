"""Rejection samplers with one fault each, or none: of other engines, and our own."""

import torch
from transformers.generation.utils import _speculative_sampling

from naive_speculate.speculate.utils import speculative_sampling


def ours(target, proposal, candidates):
    """With torch's global generator, so that it is sampled."""
    return speculative_sampling(target, proposal, candidates)


def of_transformers(target, proposal, candidates):
    """transformers' own function, for a batch of one; the last of its tokens is the resampled or the bonus token."""
    logits = proposal.log()[None], target.log()[None]
    tokens, num_matches = _speculative_sampling(candidates[None], logits[0], len(candidates), logits[1])
    return num_matches, tokens[0, -1]


def of_cumulative(probs, u):
    """The token at which the cumulative sum exceeds u; the last token if none does."""
    return (probs.cumsum(0) <= u).sum().clamp(max=len(probs) - 1)


def rejected(target, proposal, candidates, uniforms):
    rows = torch.arange(len(candidates))
    ratio = target[rows, candidates] / proposal[rows, candidates]
    return int((torch.as_tensor(uniforms) < ratio).long().cumprod(0).sum())


def rest(target, proposal, index):
    left = (target[index] - proposal[index]).clamp_min(0)
    return left / left.sum() if left.sum() > 0 else target[index]


def inverse(target, proposal, candidates, random):
    """Right: draws by the inverse of the cumulative distribution, which enumeration has to find out."""
    index = rejected(target, proposal, candidates, [random.uniform() for _ in candidates])
    probs = target[index] if index == len(candidates) else rest(target, proposal, index)
    return index, of_cumulative(probs, random.uniform())


def unnormalised(target, proposal, candidates):
    index = rejected(target, proposal, candidates, torch.rand(len(candidates)))
    probs = target[index] if index == len(candidates) else (target[index] - proposal[index]).clamp_min(0)
    return index, of_cumulative(probs, torch.rand(()))


def one_noise(target, proposal, candidates):
    """The draw that rejected the candidate also draws the token in its place."""
    uniforms = torch.rand(len(candidates) + 1)
    index = rejected(target, proposal, candidates, uniforms[:-1])
    probs = target[index] if index == len(candidates) else rest(target, proposal, index)
    return index, of_cumulative(probs, uniforms[index])


def warped_again(target, proposal, candidates):
    """q at another temperature than the candidates were drawn at."""
    return ours(target, torch.softmax(proposal.log() / 0.8, -1), candidates)


def bonus_of_another_row(target, proposal, candidates):
    """The bonus token comes from the row of the last candidate."""
    index, token = ours(target, proposal, candidates)
    return (index, torch.multinomial(target[-2], 1)[0]) if index == len(candidates) else (index, token)


def drops_doubtful(target, proposal, candidates):
    """Drops a candidate of a small proposal probability, with all that follows, and draws from the target there."""
    doubtful = [i for i, token in enumerate(candidates.tolist()) if proposal[i, token] < 0.25]
    kept = doubtful[0] if doubtful else len(candidates)
    return ours(target[: kept + 1], proposal[:kept], candidates[:kept])


def fails(target, proposal, candidates):
    raise RuntimeError("no verdict today")


FAULTS = [unnormalised, one_noise, warped_again, bonus_of_another_row, drops_doubtful]


# With `random`, for enumeration


def one_noise_passed_in(target, proposal, candidates, random):
    uniforms = [random.uniform() for _ in range(len(candidates) + 1)]
    index = rejected(target, proposal, candidates, uniforms[:-1])
    probs = target[index] if index == len(candidates) else rest(target, proposal, index)
    return index, of_cumulative(probs, uniforms[index])


def draws_elsewhere(target, proposal, candidates, random):
    return ours(target, proposal, candidates)
