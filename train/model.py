"""A small Llama that drafts for the target, distilled from the target's distributions.

It reads tokens only, so it serves any engine. Its embeddings begin as the target's, projected
onto their main directions. It learns to draft the answers' usual tokens, and not to draft the
others. An update computes only some of the others, drawn at random, and lets them stand for all,
as in the sampled softmax of Jean et al. 2015 (arXiv 1412.2007). This takes a quarter of the
time.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from train.batches import Batch, indices_of, token_loss

WEIGHED = 2_048  # unusual tokens that stand for all of them in an update


class DraftModel(nn.Module):
    """A draft model with tied embeddings, for training.

    Args:
        embeddings: The target's, `[vocab_size, d]`.
        known: Ids of the usual tokens, int64 `[known]`.
        width, depth: Of the draft model.
        eos_token_ids: The target's end tokens.
        max_positions: How many tokens it may read; None for 2,048.
    """

    def __init__(
        self,
        embeddings: Tensor,
        known: Tensor,
        width: int,
        depth: int,
        eos_token_ids: Sequence[int],
        max_positions: int | None,
    ) -> None:
        super().__init__()
        heads, vocab_size = max(1, width // 64), len(embeddings)
        if width % (2 * heads):
            raise ValueError(
                f"--width {width}: it must be a multiple of {2 * heads}, for {heads} heads of an"
                " even width"
            )
        config = LlamaConfig(
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            head_dim=width // heads,
            vocab_size=vocab_size,
            max_position_embeddings=max_positions or 2_048,
            bos_token_id=None,
            eos_token_id=list(eos_token_ids) or None,
            pad_token_id=None,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            tie_word_embeddings=True,
        )
        self.llama = LlamaForCausalLM(config)
        index = indices_of(known, vocab_size)
        self.register_buffer("known", known, persistent=False)
        self.register_buffer("others", (index < 0).nonzero()[:, 0], persistent=False)
        self.register_buffer("index_of", index, persistent=False)
        with torch.no_grad():
            _, _, directions = torch.pca_lowrank(
                embeddings.float(), q=min(width, *embeddings.shape), niter=2
            )
            projected = embeddings.float() @ directions
            self.llama.model.embed_tokens.weight[:, : projected.shape[1]] = projected

    known: Tensor
    others: Tensor
    index_of: Tensor

    def forward(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """As `HeadModel.forward`, of one step: the model drafts any position from the tokens
        before it."""
        hidden = self.llama.model(input_ids=batch.tokens).last_hidden_state
        # The batch's positions are a head's, which reads the next token as well.
        loss, share = token_loss(
            self.logits(hidden[batch.rows, batch.positions + 1]), batch, self.index_of
        )
        return loss, [share]

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of the usual tokens, then of the others: of all without gradients, else of some
        that stand for all."""
        some = torch.randperm(len(self.others), device=hidden.device)[
            : WEIGHED if torch.is_grad_enabled() else None
        ]
        weighed = self.others[some]
        logits = F.linear(hidden, self.llama.lm_head.weight[torch.cat([self.known, weighed])])
        if len(weighed):
            logits[..., len(self.known) :] += math.log(len(self.others) / len(weighed))
        return logits
