"""Presets: the shapes of both models and the numbers of their training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from transformers import LlamaConfig

END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0


@dataclass(frozen=True)
class ModelShape:
    """The size of one Llama-architecture model; every head is ``hidden / heads`` wide."""

    layers: int
    hidden: int
    heads: int
    intermediate: int

    def llama_config(self, vocab_size: int, positions: int) -> LlamaConfig:
        return LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads,
            max_position_embeddings=positions,
            bos_token_id=END_OF_TEXT_ID,
            eos_token_id=END_OF_TEXT_ID,
            pad_token_id=None,
            tie_word_embeddings=True,
        )


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what comes out of a training run. Lengths and sizes count tokens."""

    vocab_size: int
    positions: int
    target: ModelShape
    draft: ModelShape
    story_share: float  # share of the training tokens that the story generator writes
    sequence_length: int  # during warm-up and the stable phase; the decay runs at ``positions``
    batch_tokens: int  # per optimizer step
    micro_tokens: int  # per forward pass
    draft_batch_tokens: int
    muon_rate: float
    adam_rate: float
    warmup_steps: int
    decay_share: float  # share of the budget spent on lowering the rates to zero
    sample_tokens: int  # of the target's own text, for the draft to learn from
    seed: int = 1

    def target_settings(self) -> dict[str, Any]:
        """What decides the target; a change of the draft alone leaves the target's checkpoints valid."""
        of_drafts = ("draft", "draft_batch_tokens", "sample_tokens")
        return {key: value for key, value in asdict(self).items() if key not in of_drafts}


@dataclass(frozen=True)
class HeadRecipe:
    """What decides a draft head, beside the draft that it begins as and the recipe of the pair."""

    layers: tuple[int, ...]  # of the target, whose hidden states it reads: after so many layers, fewer than there are
    known_tokens: int | None  # so many of the most frequent tokens; None for all
    steps: int  # of a window, simulated in training
    muon_rate: float
    adam_rate: float


@dataclass(frozen=True)
class TogetherRecipe:
    """What decides how target, draft and head are trained together."""

    weight: float  # of both drafters' total variation, beside the target's loss in nats
    muon_rate: float  # of the drafters
    adam_rate: float
    target_share: float  # of these rates, for the target
    batch_tokens: int  # per optimizer step
    decay_share: float  # of the minutes, in which the rates fall


HEADS: dict[str, HeadRecipe] = {
    "cpu": HeadRecipe((2, 6, 11), None, steps=4, muon_rate=0.015, adam_rate=0.0045),
    "gpu": HeadRecipe((2, 6, 11), None, steps=4, muon_rate=0.02, adam_rate=0.004),
    "tiny": HeadRecipe((0, 1, 1), 256, steps=3, muon_rate=0.02, adam_rate=0.004),
}
"""By preset. Not among the recipes, which are part of the targets' checkpoints."""

TOGETHER: dict[str, TogetherRecipe] = {
    "cpu": TogetherRecipe(1.5, 0.01, 0.003, 0.3, 8192, 1.0),
    "gpu": TogetherRecipe(1.5, 0.01, 0.003, 0.3, 65_536, 1.0),
    "tiny": TogetherRecipe(1.5, 0.01, 0.003, 0.3, 256, 1.0),
}
"""By preset, likewise."""

PRESETS: dict[str, Recipe] = {
    "cpu": Recipe(
        vocab_size=4096,
        positions=1024,
        target=ModelShape(layers=12, hidden=512, heads=8, intermediate=1376),
        draft=ModelShape(layers=2, hidden=192, heads=3, intermediate=512),
        story_share=0.2,
        sequence_length=512,
        batch_tokens=12_288,
        micro_tokens=4096,
        draft_batch_tokens=4096,
        muon_rate=0.015,
        adam_rate=0.0045,
        warmup_steps=20,
        decay_share=0.4,
        sample_tokens=1_440_000,
    ),
    "gpu": Recipe(
        vocab_size=4096,
        positions=1024,
        target=ModelShape(layers=12, hidden=512, heads=8, intermediate=1376),
        draft=ModelShape(layers=2, hidden=192, heads=3, intermediate=512),
        story_share=0.1,
        sequence_length=512,
        batch_tokens=65_536,
        micro_tokens=32_768,
        draft_batch_tokens=65_536,
        muon_rate=0.02,
        adam_rate=0.004,
        warmup_steps=100,
        decay_share=0.25,
        sample_tokens=8_000_000,
    ),
    "tiny": Recipe(
        vocab_size=320,
        positions=64,
        target=ModelShape(layers=2, hidden=32, heads=2, intermediate=64),
        draft=ModelShape(layers=1, hidden=16, heads=1, intermediate=32),
        story_share=0.25,
        sequence_length=32,
        batch_tokens=256,
        micro_tokens=128,
        draft_batch_tokens=256,
        muon_rate=0.02,
        adam_rate=0.004,
        warmup_steps=2,
        decay_share=0.25,
        sample_tokens=1024,
    ),
}
