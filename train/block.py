"""Block drafters for training: DFlash (Chen et al. 2026, arXiv 2602.06036) and DSpark.

A block is a token and mask tokens after it. Its positions attend to the target's fused states of
all tokens before the block, and to the whole block. In DFlash, the output at the j-th mask
predicts the j-th token after the block's first. In DSpark, the output at any position predicts
the next token, and a low-rank product of the token before is added to its logits; names follow
vLLM's speculators. Training takes blocks that begin at random places of the answers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3Attention,
    Qwen3MLP,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    rotate_half,
)

from train.batches import Batch, loss_over_steps, token_loss
from train.head import KeysValues, ReadsTarget

BLOCK_SHARE = 2  # one of so many answer tokens begins a block


class BlockAttention(Qwen3Attention):  # type: ignore[misc]
    """Attention of blocks over the target's states before them and over themselves."""

    def forward(
        self, blocks: Tensor, states: Tensor, rotation: KeysValues, visible: Tensor
    ) -> Tensor:
        """Attend.

        Args:
            blocks: Normed residual stream of the blocks, side by side, `[rows, tokens, d]`.
            states: The target's fused and normed states, `[rows, positions, d]`.
            rotation: Cosines and sines of the positions of `states` and `blocks`, `[rows,
                positions + tokens, head_dim]`.
            seen: What each token attends to, bool `[rows, 1, tokens, positions + tokens]`.
        """
        read, (cos, sin) = torch.cat([states, blocks], 1), (table[:, None] for table in rotation)
        queries = self._heads(self.q_proj(blocks), self.q_norm)
        keys = self._heads(self.k_proj(read), self.k_norm)
        first = states.shape[1]
        queries = queries * cos[:, :, first:] + rotate_half(queries) * sin[:, :, first:]
        keys, values = keys * cos + rotate_half(keys) * sin, self._heads(self.v_proj(read))
        attended = F.scaled_dot_product_attention(
            queries, keys.to(values), values, visible, enable_gqa=True
        )
        result: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return result

    def _heads(self, projected: Tensor, norm: nn.Module | None = None) -> Tensor:
        """`[rows, heads, tokens, head_dim]`."""
        heads = projected.unflatten(-1, (-1, self.head_dim))
        return (heads if norm is None else norm(heads)).transpose(1, 2)


class BlockLayer(nn.Module):
    """A decoder layer, named as in the authors' checkpoints."""

    def __init__(self, config: Qwen3Config, index: int) -> None:
        super().__init__()
        self.self_attn, self.mlp = BlockAttention(config, index), Qwen3MLP(config)
        self.input_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self, blocks: Tensor, states: Tensor, rotation: KeysValues, visible: Tensor
    ) -> Tensor:
        """The residual stream of the blocks after this layer; see `BlockAttention`."""
        blocks = blocks + self.self_attn(self.input_layernorm(blocks), states, rotation, visible)
        result: Tensor = blocks + self.mlp(self.post_attention_layernorm(blocks))
        return result


class MarkovHead(nn.Module):
    """The logits that a token adds to those of its successors, `[..., known]`: a bigram model of
    low rank. `vocab_size`: all of the target's tokens; `known`: those that can be drafted."""

    def __init__(self, vocab_size: int, rank: int, known: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, known, bias=False)
        nn.init.normal_(self.markov_w1.weight, std=0.01)

    def forward(self, token_ids: Tensor) -> Tensor:
        result: Tensor = self.markov_w2(self.markov_w1(token_ids))
        return result


class BlockModel(ReadsTarget):
    """A block drafter whose embeddings are the target's and stay fixed; its own mask token is
    one that it cannot draft.

    Args:
        config: Shape of the layers; `vocab_size` is the target's.
        embeddings, num_layers, known: See `ReadsTarget`.
        num_drafts: Draft tokens of a block.
        rank: Of the low-rank product (DSpark); 0 for none (DFlash).
    """

    def __init__(
        self,
        config: Qwen3Config,
        embeddings: Tensor,
        num_layers: int,
        known: Tensor,
        num_drafts: int,
        rank: int = 0,
    ) -> None:
        super().__init__(config, embeddings, num_layers, known)
        self.num_drafts, self.rank = num_drafts, rank
        self.block_size = num_drafts if rank else num_drafts + 1
        if rank:
            self.markov_head = MarkovHead(config.vocab_size, rank, len(known))
        unknown = (self.index_of < 0).nonzero()
        self.mask_token_id = int(unknown.max()) if len(unknown) else config.vocab_size - 1
        self.hidden_norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList(
            BlockLayer(config, index) for index in range(config.num_hidden_layers)
        )
        self.rotary = Qwen3RotaryEmbedding(config)

    def forward(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """As `HeadModel.forward`, of random blocks; a draft step is a position of the block."""
        firsts, indices = self._blocks(batch)
        size, device = self.block_size, firsts.device
        offsets = torch.arange(firsts.shape[1] * size, device=device)
        own, begins = offsets // size, firsts.repeat_interleave(size, 1)
        places = begins + offsets % size
        tokens = torch.where(begins == places, batch.tokens.gather(1, begins), self.mask_token_id)
        blocks = F.embedding(tokens, self.embeddings)
        states = self.hidden_norm(self.fc(batch.states))
        positions = torch.arange(states.shape[1], device=device).expand(len(states), -1)
        before = positions[:, None] < begins[..., None]
        visible = torch.cat([before, (own == own[:, None]).expand(len(states), -1, -1)], -1)[
            :, None
        ]
        rotation = self.rotary(states, torch.cat([positions, places], 1))
        for layer in self.layers:
            blocks = layer(blocks, states, rotation, visible)
        hidden = self.norm(blocks).unflatten(1, (-1, size))[:, :, -self.num_drafts :]
        losses: dict[int, Tensor] = {}
        accepted = []
        for step in range(self.num_drafts):
            index = indices[..., step]
            known = index >= 0  # the others are after the conversation's end
            if not known.any():
                accepted.append(hidden.new_zeros(2))
                continue
            logits, chosen = self.lm_head(hidden[:, :, step][known]), index[known]
            if self.rank:
                before = batch.tokens[batch.rows[chosen], batch.positions[chosen] + 1]
                logits = logits + self.markov_head(before)
            losses[step], share = token_loss(logits, batch.at(chosen), self.index_of)
            accepted.append(share)
        return loss_over_steps(losses), accepted

    def _blocks(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Random blocks in each row: the position of their first tokens, `[rows, blocks]`, and
        for each draft token the index among the batch's positions where it is predicted, `[rows,
        blocks, num_drafts]`; -1 after the end."""
        counts = torch.bincount(batch.rows, minlength=len(batch.tokens))
        count = max(1, len(batch.rows) // len(counts) // BLOCK_SHARE)
        within = (torch.rand(len(counts), count, device=counts.device) * counts[:, None]).long()
        chosen = (counts.cumsum(0) - counts)[:, None] + within
        steps = torch.arange(self.num_drafts, device=counts.device)
        indices = torch.where(
            within[..., None] + steps < counts[:, None, None], chosen[..., None] + steps, -1
        )
        # at position i the batch has the prediction of token i + 2
        return batch.positions[chosen] + 1, indices
