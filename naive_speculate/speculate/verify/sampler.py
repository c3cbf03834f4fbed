"""What the two samplers with vLLM's interface share: checks, and the layout of the output.

Each states one rule and offers it in two forms. `judge` is what the decoder calls: a pure
function from distributions and draws to a `Verdict`. `forward` draws by itself and returns token
ids padded with -1.
"""

import torch
from torch import Tensor

from naive_speculate.speculate.rules import Verifier, count_leading


class Sampler(Verifier):
    """The base of both samplers. `strict_mode`: check shapes, dtypes, devices and token ids at
    every call of `forward`."""

    def __init__(self, strict_mode: bool = False) -> None:
        self.strict_mode = strict_mode

    def _check(
        self,
        target_with_bonus_probs: Tensor,
        bonus_token_ids: Tensor,
        draft_probs: Tensor | None,
        draft_token_ids: Tensor,
    ) -> None:
        if not self.strict_mode:
            return
        if target_with_bonus_probs.dim() != 3:
            got = list(target_with_bonus_probs.shape)
            raise ValueError(f"target_with_bonus_probs must have 3 dimensions, got shape {got}")
        batch_size, width, vocab_size = target_with_bonus_probs.shape
        _expect_shape("draft_token_ids", draft_token_ids, (batch_size, width - 1))
        if tuple(bonus_token_ids.shape) not in ((batch_size,), (batch_size, 1)):
            got = list(bonus_token_ids.shape)
            raise ValueError(f"bonus_token_ids must have shape [{batch_size}, 1], got {got}")
        if not target_with_bonus_probs.is_floating_point():
            raise ValueError(
                "target_with_bonus_probs must be floating point, got"
                f" {target_with_bonus_probs.dtype}"
            )
        if draft_probs is not None:
            _expect_shape("draft_probs", draft_probs, (batch_size, width - 1, vocab_size))
            if draft_probs.dtype != target_with_bonus_probs.dtype:
                dtype = target_with_bonus_probs.dtype
                raise ValueError(
                    f"draft_probs must be {dtype} like target_with_bonus_probs, got"
                    f" {draft_probs.dtype}"
                )
        named = {
            "bonus_token_ids": bonus_token_ids,
            "draft_probs": draft_probs,
            "draft_token_ids": draft_token_ids,
        }
        for name, tensor in named.items():
            if tensor is not None and tensor.device != target_with_bonus_probs.device:
                raise ValueError(
                    f"{name} must be on {target_with_bonus_probs.device}, got {tensor.device}"
                )
        for name, tensor in (
            ("bonus_token_ids", bonus_token_ids),
            ("draft_token_ids", draft_token_ids),
        ):
            if tensor.dtype != torch.int64:
                raise ValueError(f"{name} must be int64, got {tensor.dtype}")
            if tensor.numel() and (tensor.min() < 0 or tensor.max() >= vocab_size):
                outside = tensor.min().item() if tensor.min() < 0 else tensor.max().item()
                raise ValueError(f"{name} holds {outside}, outside the vocabulary of {vocab_size}")

    @staticmethod
    def _lay_out(
        accepted: Tensor,
        recovered_token_ids: Tensor,
        bonus_token_ids: Tensor,
        draft_token_ids: Tensor,
    ) -> Tensor:
        """Accepted drafts, then the recovered token at the first rejection or the bonus token,
        then -1."""
        batch_size, k = draft_token_ids.shape
        num_accepted = count_leading(accepted)[:, None]
        extra = torch.cat([recovered_token_ids, bonus_token_ids.reshape(batch_size, 1)], dim=1)
        drafts = torch.cat([draft_token_ids, draft_token_ids.new_full((batch_size, 1), -1)], dim=1)
        indices = torch.arange(k + 1, device=draft_token_ids.device)
        out = torch.where(indices < num_accepted, drafts, extra)
        return out.masked_fill(indices > num_accepted, -1)


def _expect_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {list(shape)}, got {list(tensor.shape)}")
