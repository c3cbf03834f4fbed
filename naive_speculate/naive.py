"""Speculative decoding in one file: Algorithm 1 of Leviathan et al. 2023 (arXiv 2211.17192),
repeated until the text ends. `SpeculativeDecoder` adds batches, parameters and events.

A small draft model samples γ tokens, one by one. The target model scores all of them in one
forward, which takes little longer than over one token. Each is then accepted or rejected such that
the text has exactly the target's distribution. (Chen et al. 2023, arXiv 2302.01318, found it too.)

Names are Leviathan's: p is the target's distribution, q the draft's, x₁ … x_γ the draft tokens,
n of which are accepted, and t is the target's token after them.

    python -m naive_speculate.naive "Once upon a time"
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

import torch

from naive_speculate.infer import BasicInferencer, KVCache, new_cache
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.random_source import RandomSource, SeededRandom, fresh_seed
from naive_speculate.speculate.drafter import Drafter
from naive_speculate.speculate.naive_step import StepTokens, check_arguments
from naive_speculate.speculate.utils import speculative_sampling


@dataclass(frozen=True)
class Sampler:
    """softmax(logits / T), and draws from it; the `TokenSampler` of the `Drafter`. Drafting stops
    after an end token. Logits after `vocab_size` are padding."""

    temperature: float
    random: RandomSource
    end_token_ids: frozenset[int]
    vocab_size: int

    def probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits `[..., vocab_size or more]` to distributions. At T = 0 that is the limit:
        probability 1 for the most probable token."""
        logits = logits[..., : self.vocab_size]
        if self.temperature == 0:
            return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return torch.softmax(logits / self.temperature, dim=-1)

    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        """A token of each distribution, int64 `[batch_size]`."""
        if self.temperature == 0:
            return logits[..., : self.vocab_size].argmax(dim=-1)
        return torch.stack([self.random.categorical(row) for row in self.probs(logits)])

    def is_done(self, token_ids: torch.Tensor) -> bool:
        """Whether all are end tokens."""
        return self.end_token_ids.issuperset(token_ids.tolist())


def speculative_decode(
    pair: ModelPair,
    prompt_token_ids: Sequence[int],
    *,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    random: RandomSource | None = None,
) -> Iterator[StepTokens]:
    """Decode one sequence and yield each step as soon as it is done.

    `num_draft_tokens` is γ; 0 is plain decoding. An end token is emitted and ends the text early.
    `temperature` 0 emits the target's most probable tokens. `random` is the source of all draws;
    None for one with a fresh seed. Raises `ValueError` with the first step, naming the argument.
    """
    check_arguments(pair, prompt_token_ids, num_draft_tokens, max_new_tokens, temperature)
    assert pair.drafting is not None
    device = getattr(pair.target, "device", torch.device("cpu"))
    random = random or SeededRandom(fresh_seed(), device=device)
    end_token_ids = BasicInferencer(pair.target).eos_token_ids
    sampler = Sampler(temperature, random, end_token_ids, pair.vocab_size)
    drafter = Drafter(BasicInferencer(pair.drafting))
    draft_cache, target_cache = new_cache(pair.drafting), new_cache(pair.target)
    tokens = list(prompt_token_ids)
    remaining, emitted = max_new_tokens, [-1]

    while remaining > 0 and emitted[-1] not in end_token_ids:
        # 1. Draft. The draft model samples x₁ … x_γ from q₁ … q_γ. Near the end γ is smaller, since
        # t needs room, too; with γ = 0 the rest is plain decoding.
        gamma = min(num_draft_tokens, remaining - 1)
        query = _lacking(tokens, draft_cache, device)
        x, q = query[0, :0], torch.empty(0, pair.vocab_size, device=device)
        if gamma > 0:
            draft = drafter.draft(query, draft_cache, gamma, sampler)
            x, q = draft.token_ids[0], sampler.probs(draft.token_logits[0])

        # 2. Score. One forward of the target over x₁ … x_γ gives p₁ … p_{γ+1}.
        query = torch.cat([_lacking(tokens, target_cache, device), x[None]], dim=1)
        p = sampler.probs(pair.target.forward(query, target_cache)[0, -len(x) - 1 :])

        # 3. Verify. Accept x₁ … x_n. After a rejection t ~ norm(max(0, p_{n+1} − q_{n+1})),
        # otherwise t ~ p_{γ+1}. At T = 0 that accepts what the target is certain of.
        if temperature == 0:
            best = p.argmax(dim=-1)
            n = int((x == best[:-1]).cumprod(dim=0).sum())
            t = best[n]
        else:
            accepted, t = speculative_sampling(p, q, x, random)
            n = int(accepted)

        # 4. Roll back. Both caches forget the tokens after x_n. (The draft's never held x_γ.)
        for kv_cache in (draft_cache, target_cache):
            kv_cache.crop(max(0, kv_cache.get_num_tokens() - len(tokens) - n))

        # 5. Emit. x₁ … x_n and t join the text, up to an end token.
        emitted = [*x[:n].tolist(), int(t)]
        ends = [i + 1 for i, token in enumerate(emitted) if token in end_token_ids]
        emitted = emitted[: min(ends, default=None)]
        tokens, remaining = tokens + emitted, remaining - len(emitted)
        yield StepTokens(x.tolist(), n, emitted)


def _lacking(token_ids: list[int], kv_cache: KVCache, device: torch.device) -> torch.Tensor:
    """The tokens that a cache lacks, `[1, num_lacking]`: the prompt, later the last one or two."""
    return torch.tensor([token_ids[kv_cache.get_num_tokens() :]], device=device)


def main(arguments: Sequence[str] | None = None) -> int:
    return int(import_module("naive_speculate.tools.naive_cli").main(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
