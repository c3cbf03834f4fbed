"""Which number format a device computes fastest in."""

from contextlib import AbstractContextManager

import torch


def fast_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware; a processor that does not is several times slower so."""
    if device.type != "cpu":
        return True
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16") or able.get("bf16"))


def half_precision(device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 matrix products where the device has them; parameters, norms and losses stay in float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=fast_bfloat16(device))
