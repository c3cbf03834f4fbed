"""An EAGLE-3 draft head (Li et al. 2025, arXiv 2503.01840) for training.

The states of some of the target's layers are fused into one. At position i the head's only layer
reads the embedding of token i + 1 and the fused state of token i, and predicts token i + 2. When
it drafts further, the target's state does not exist yet: the head's own output at the position
before replaces it. Training simulates that ("training-time test", section 3.2): in step j
position i reads the head's output of step j - 1 at position i - 1, and attends to the target's
states up to i - j only. The head drafts the most frequent tokens only, which keeps its largest
matrix small.
"""

from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig, PretrainedConfig
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from train.batches import Batch, indices_of, loss_over_steps, token_loss

KeysValues = tuple[Tensor, Tensor]
ConfigT = TypeVar("ConfigT", bound=PretrainedConfig)


class HeadAttention(nn.Module):
    """Attention over the target's states and over the head's own earlier drafts of the same
    window."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        d = config.hidden_size
        num_heads = config.num_attention_heads
        num_kv_heads = config.num_key_value_heads
        assert num_kv_heads is not None
        self.head_dim: int = config.head_dim or d // num_heads
        self.groups = num_heads // num_kv_heads
        queries, keys = num_heads * self.head_dim, num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(2 * d, queries, bias=False)
        self.k_proj = nn.Linear(2 * d, keys, bias=False)
        self.v_proj = nn.Linear(2 * d, keys, bias=False)
        self.o_proj = nn.Linear(queries, d, bias=False)

    def forward(self, read: Tensor, rotation: KeysValues, steps: list[KeysValues]) -> Tensor:
        """Attend in simulated step `len(steps)`.

        Args:
            read: Embeddings and states side by side, `[rows, positions, 2 * d]`.
            rotation: Cosines and sines of the positions.
            steps: Keys and values of the earlier steps; this step's are appended.
        """
        parts = (
            layer(read).unflatten(-1, (-1, self.head_dim))
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        queries, keys, values = (part.transpose(1, 2) for part in parts)
        queries, keys = apply_rotary_pos_emb(queries, keys, *rotation)
        steps.append(
            (keys.repeat_interleave(self.groups, 1), values.repeat_interleave(self.groups, 1))
        )
        step, positions = len(steps) - 1, torch.arange(read.shape[1], device=read.device)
        first_keys, first_values = steps[0]
        unseen = positions[None] > positions[:, None] - step
        # In step 0 position i sees all up to itself; later it sees the target's up to i - step, and
        # one state per step since.
        scores = (queries @ first_keys.transpose(2, 3)).masked_fill(unseen, -torch.inf)
        window = [
            (later(steps[m][0], step - m, 2), later(steps[m][1], step - m, 2))
            for m in range(1, step + 1)
        ]
        own = [(queries * k).sum(-1, keepdim=True) for k, _ in window]
        weights = torch.softmax(torch.cat([scores, *own], -1) * self.head_dim**-0.5, -1)
        attended = weights[..., : len(positions)] @ first_values
        for m, (_, v) in enumerate(window):
            attended = attended + weights[..., len(positions) + m, None] * v
        result: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return result


class HeadLayer(nn.Module):
    """The head's decoder layer, named as in the authors' checkpoints."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        d, epsilon = config.hidden_size, config.rms_norm_eps
        self.hidden_norm = LlamaRMSNorm(d, eps=epsilon)
        self.input_layernorm = LlamaRMSNorm(d, eps=epsilon)
        self.self_attn, self.mlp = HeadAttention(config), LlamaMLP(config)
        self.post_attention_layernorm = LlamaRMSNorm(d, eps=epsilon)

    def forward(
        self, embedded: Tensor, states: Tensor, rotation: KeysValues, steps: list[KeysValues]
    ) -> Tensor:
        """The head's output, `[rows, positions, d]`."""
        read = torch.cat([self.input_layernorm(embedded), self.hidden_norm(states)], -1)
        hidden = states + self.self_attn(read, rotation, steps)
        result: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return result


class ReadsTarget(nn.Module):
    """What a head and a block drafter share: they fuse the target's states, and draft some of
    its tokens.

    Args:
        config: Shape of the layers; `vocab_size` is the target's.
        embeddings: The target's, `[vocab_size, d]`; they stay fixed.
        num_layers: Of the target, whose states it reads.
        known: The target's ids of the tokens that it can draft, ascending, int64 `[known]`.
    """

    def __init__(self, config: Any, embeddings: Tensor, num_layers: int, known: Tensor) -> None:
        super().__init__()
        d = config.hidden_size
        self.config = config
        self.fc = nn.Linear(num_layers * d, d, bias=False)
        self.norm = LlamaRMSNorm(d, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(d, len(known), bias=False)
        self.register_buffer("known", known, persistent=False)
        self.register_buffer("embeddings", embeddings.float(), persistent=False)
        self.register_buffer("index_of", indices_of(known, config.vocab_size), persistent=False)

    known: Tensor
    embeddings: Tensor
    index_of: Tensor

    @torch.no_grad()
    def begin(self, output: Tensor) -> None:
        """Start from the target's output matrix `[vocab_size, d]`, and let the target's last
        layer pass through `fc`."""
        self.lm_head.weight.copy_(output[self.known])
        d = self.config.hidden_size
        self.fc.weight.mul_(0.5)
        self.fc.weight[:, -d:] += torch.eye(d) * 0.1
        for name, weight in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(0.5)


class HeadModel(ReadsTarget):
    """A draft head; see `ReadsTarget`. `num_steps`: the draft steps that training simulates."""

    def __init__(
        self,
        config: LlamaConfig,
        embeddings: Tensor,
        num_layers: int,
        known: Tensor,
        num_steps: int,
    ) -> None:
        super().__init__(config, embeddings, num_layers, known)
        self.num_steps = num_steps
        self.midlayer = HeadLayer(config)
        self.rotary = LlamaRotaryEmbedding(config)

    def forward(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """The mean loss over simulated steps, and for each step the accepted share at
        temperature 1 and at 0, shape `[2]`."""
        states = self.fc(batch.states[:, :-1])
        embedded = F.embedding(batch.tokens[:, 1:], self.embeddings)
        rotation = self.rotary(
            embedded, torch.arange(embedded.shape[1], device=embedded.device)[None]
        )
        steps: list[KeysValues] = []
        losses: dict[int, Tensor] = {}
        accepted = []
        for step in range(self.num_steps):
            states = self.midlayer(embedded, states, rotation, steps)
            logits = self.lm_head(self.norm(states[batch.rows, batch.positions]))
            losses[step], share = token_loss(logits, batch, self.index_of)
            accepted.append(share)
            states = later(states, 1, 1)
        return loss_over_steps(losses), accepted


def later(states: Tensor, count: int, dim: int) -> Tensor:
    """Each position's states, `count` positions later along `dim`; zeros before."""
    if not count:
        return states
    padding = [0, 0] * (states.dim() - 1 - dim) + [count, 0]
    return F.pad(states, padding).narrow(dim, 0, states.shape[dim])


def shape_of(
    kind: type[ConfigT], hidden_size: int, vocab_size: int, mlp: int | None, depth: int
) -> ConfigT:
    """The shape of a drafter: layers as wide as the target, heads of 64, up to four queries per
    key, an MLP of its own."""
    head_dim = next(width for width in (64, 32, 16, 8, 4, 2, 1) if hidden_size % width == 0)
    heads = hidden_size // head_dim
    return kind(
        hidden_size=hidden_size,
        intermediate_size=mlp or 2 * hidden_size,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        num_key_value_heads=heads // max(groups for groups in (1, 2, 3, 4) if heads % groups == 0),
        head_dim=head_dim,
        vocab_size=vocab_size,
        max_position_embeddings=2_048,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=False,
    )
