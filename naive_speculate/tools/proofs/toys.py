"""Toy language models in float64: distributions that depend on the whole history, and a small
Llama with a draft head."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from naive_speculate.infer.protocols import KVCache, KVState
from naive_speculate.models.foreign.block import BlockHead, BlockOptions, Convolution
from naive_speculate.models.foreign.chain import CandidateSelector, Chain, MarkovChain, Refiner
from naive_speculate.models.foreign.parallel import ParallelHead
from naive_speculate.models.heads.model import DraftHead, Head
from naive_speculate.models.heads.weights import HeadWeights
from naive_speculate.models.llama.model import LlamaLanguageModel
from naive_speculate.models.llama.stored import StoredLlama
from naive_speculate.pair import ModelPair

EOS = 0  # their end-of-sequence token
_WIDTH = 8  # of the Llama


@dataclass(eq=False)
class ToyModel:
    """A plain `LanguageModel` (only its two members) whose next-token distribution depends on
    the whole history.

    It stores its tokens in the cache as keys, so that wrong rollbacks give wrong distributions.

    Args:
        vocab_size: Number of tokens.
        seed: Determines the distributions.
        zeros: Whether some tokens are impossible after some histories.
        temper: Scales the logits; larger is more certain.
        dtype: The dtype of the logits.
    """

    vocab_size: int
    seed: int
    zeros: bool = True
    temper: float = 1.0
    dtype: torch.dtype = torch.float64
    _cached: dict[tuple[int, ...], torch.Tensor] = field(
        default_factory=dict, init=False, repr=False
    )
    eos_token_id = EOS

    def logits(self, history: tuple[int, ...]) -> torch.Tensor:
        """Logits after these tokens, float64, shape `[vocab_size]`."""
        if (cached := self._cached.get(history)) is not None:
            return cached
        code = (
            sum((token + 1) * 31**index for index, token in enumerate(history)) + 7919 * self.seed
        )
        generator = torch.Generator().manual_seed(code % 2**62)
        logits = self._cached[history] = (
            torch.randn(self.vocab_size, generator=generator, dtype=torch.float64) * self.temper
        )
        if self.zeros:
            hit = int(torch.randint(self.vocab_size + 2, (1,), generator=generator).item())
            if hit < self.vocab_size:
                logits[hit] = -torch.inf
        return logits

    def forward(self, query_token_ids: torch.Tensor, kv_cache: KVCache) -> torch.Tensor:
        """For one sequence."""
        assert len(query_token_ids) == 1
        states = kv_cache.get_kv_states()
        past = [] if not states else [int(token) for token in states[0].keys.flatten().tolist()]
        assert len(past) == kv_cache.get_num_tokens()
        new = query_token_ids[0].tolist()
        tokens = query_token_ids.double().view(1, 1, -1, 1)
        kv_cache.update([KVState(tokens, tokens)])
        return torch.stack([self.logits((*past, *new[: index + 1])) for index in range(len(new))])[
            None
        ].to(self.dtype)


def pair_with_head(
    vocab_size: int, seed: int, adds: bool = False, block: bool = False, chain: str = ""
) -> ModelPair:
    """A Llama of two layers and a head that has all tokens but the last. `adds`: whether the
    head has two layers and adds the target's states to its embeddings; otherwise it is EAGLE-3.
    `block`: whether it is a block drafter of two layers, for three draft tokens. `chain`: what
    draws its blocks in order: "dspark", "gated" and "rnn" (also DSpark's), "dflash2", of all
    tokens and with convolutions, or "xpress"; without a block, "peagle" is a head
    that drafts in parallel."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=_WIDTH,
            intermediate_size=12,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=64,
            initializer_range=0.6,
            bos_token_id=None,
            eos_token_id=EOS,
        )
        target, other = LlamaForCausalLM(config).double(), LlamaForCausalLM(config).double()
        head = _head(StoredLlama.of(other), adds, block, chain)
        return ModelPair(LlamaLanguageModel.from_transformers(target, "torch"), head=head)


def _head(llama: StoredLlama, adds: bool, block: bool, chain: str) -> Head:
    """A head with the weights of a Llama, and random ones for what a Llama lacks."""

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64) * 0.5

    def convolution() -> Convolution:
        return Convolution(random(2, 2, d), random(4, d))

    d, own, vocab_size = _WIDTH, llama.weights, llama.shape.vocab_size
    num_tokens = vocab_size - (chain != "dflash2")
    layers = own.layers if adds or block else [replace(own.layers[0], qkv=random(3 * d, 2 * d))]
    weights = HeadWeights(
        embedding=own.embedding,
        layers=layers,
        norm=own.norm,
        head=own.head[:num_tokens],
        fuse=random(d, 3 * d),
        hidden_norm=own.norm,
        state_projection=random(d, d) if adds else None,
        token_ids=torch.arange(num_tokens),
    )
    shape = replace(llama.shape, vocab_size=num_tokens, windows=(None,) * len(layers))
    if block:
        options = BlockOptions(block_size=4, mask_token_id=0, causal=None)
        links: dict[str, Callable[[], Chain]] = {
            "dspark": lambda: MarkovChain(random(vocab_size, 2), random(num_tokens, 2)),
            "gated": lambda: MarkovChain(
                random(vocab_size, 2), random(num_tokens, 2), gate=(random(2, d + 2), random(2))
            ),
            "rnn": lambda: MarkovChain(
                random(vocab_size, 2), random(num_tokens, 2), joint=(random(6, d + 4), random(6))
            ),
            "dflash2": lambda: CandidateSelector(
                random(vocab_size, 2), random(vocab_size, 2), random(2, d), top_k=2
            ),
            "xpress": lambda: Refiner(
                random(vocab_size, 2), random(2, d), random(2, d), random(2, 6), random(2, 4, 4),
                random(3, 2), random(3, 2), random(2, 3), random(num_tokens, 2),
            ),
        }  # fmt: skip
        return BlockHead(
            weights, shape, llama.rotary, (0, 1, 2), "toy block", options,
            links[chain]() if chain else None,
            [
                (convolution(), convolution()) for _ in layers if chain == "dflash2"
            ],
        )  # fmt: skip
    if chain:
        return ParallelHead(
            weights, shape, llama.rotary, (0, 1, 2), "toy parallel head", 0, random(3 * d)
        )
    return DraftHead(weights, shape, llama.rotary, (0, 1, 2), "toy head")
