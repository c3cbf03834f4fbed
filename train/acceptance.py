"""How well a draft guesses its target, from one forward pass of each over the target's own continuations.

A token ``y`` that the target wrote at temperature 1 is one that speculative sampling (Leviathan et al. 2023,
arXiv 2211.17192, Algorithm 1) would have kept from the draft with probability ``min(1, q(y) / p(y))``; under greedy
decoding it is kept when the draft's most probable token is the same. From these probabilities the rounds of
speculative decoding are played through, which gives what real decoding gives, without running it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from train.sampling import continue_prompts

NUM_DRAFT_TOKENS = 4


@dataclass(frozen=True)
class Acceptance:
    mean_length: float  # tokens per target forward, the extra token included
    rate: float  # accepted ÷ drafted


def keep_probabilities(target_logits: Tensor, draft_logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Probability, for each token, that the draft's proposal is kept there; logits ``(…, vocab)``, tokens ``(…)``."""
    if temperature == 0:
        return (draft_logits.argmax(-1) == tokens).float()
    p = torch.softmax(target_logits.float() / temperature, -1).gather(-1, tokens[..., None])[..., 0]
    q = torch.softmax(draft_logits.float() / temperature, -1).gather(-1, tokens[..., None])[..., 0]
    return (q / p.clamp_min(1e-30)).clamp_max(1.0)


def play_rounds(kept: list[list[bool]], num_draft_tokens: int) -> Acceptance:
    """Cut each row into rounds: up to ``num_draft_tokens`` kept tokens and one more; unfinished rounds are left out."""
    rounds = accepted = 0
    for row in kept:
        place = 0
        while place + num_draft_tokens + 1 <= len(row):
            window = row[place : place + num_draft_tokens]
            good = window.index(False) if False in window else num_draft_tokens
            rounds, accepted, place = rounds + 1, accepted + good, place + good + 1
    rounds = max(rounds, 1)
    return Acceptance(mean_length=1 + accepted / rounds, rate=accepted / (rounds * num_draft_tokens))


@torch.no_grad()
def measure_acceptance(
    target: LlamaForCausalLM,
    draft: LlamaForCausalLM,
    prompts: Tensor,
    new_tokens: int,
    temperature: float,
) -> Acceptance:
    """With ``NUM_DRAFT_TOKENS`` a round; prompts ``(rows, length)``, both models on their device."""
    generator = torch.Generator(prompts.device).manual_seed(0)
    tokens = continue_prompts(target, prompts, new_tokens, temperature, generator)
    start = prompts.shape[1]
    logits = [model(input_ids=tokens, use_cache=False).logits[:, start - 1 : -1] for model in (target, draft)]
    keep = keep_probabilities(logits[0], logits[1], tokens[:, start:], temperature)
    draws = torch.rand(keep.shape, generator=generator, device=keep.device)
    return play_rounds((draws < keep).tolist(), NUM_DRAFT_TOKENS)
