"""The rejection sampler of vLLM's second model runner, one sequence at a time, in Triton's
interpreter. This runs in vLLM's own environment."""

import os
from types import SimpleNamespace
from typing import Any

os.environ |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "VLLM_NO_USAGE_STATS": "1"}
import torch
from serve import Ask
from triton import language
from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils as vllm

vllm.tldevice = SimpleNamespace(log1p=lambda x: language.log(1 + x))  # the interpreter has none
WAYS: dict[str, dict[str, Any]] = {
    "standard": {},
    "argmax drafts": {},
    "block": {"use_block_verification": True},
    "fly": {"fly_window_size": 1},
}


def judged(logits: Any, drafts: Any, draft_logits: Any, ask: Ask, position: int) -> list[int]:
    """The tokens that it emits from logits `[k + 1, vocab_size]` of the target, draft tokens `[k]`
    and the draft's logits `[k, vocab_size]`; both logits are divided by the temperature."""
    k, one = len(drafts), torch.zeros(1, dtype=torch.int32)
    rows = torch.arange(k + 1, dtype=torch.int32)
    tokens, count = vllm.rejection_sample(
        logits.contiguous(),
        None if "argmax" in ask.way else draft_logits[None] * (ask.temperature or 1.0),
        torch.cat([one.long(), drafts]),
        torch.tensor([0, k + 1], dtype=torch.int32),
        position + rows.long(),
        one,
        torch.zeros_like(rows),
        rows,
        torch.tensor([ask.temperature]),
        torch.tensor([ask.seed]),
        k,
        **WAYS[ask.way],
    )
    return list(tokens[0, : int(count[0])].tolist())
