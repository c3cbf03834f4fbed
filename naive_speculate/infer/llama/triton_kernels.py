"""Triton kernels for what a decoder layer does between its matrix products.

With few tokens a layer's small operations take about as long to launch as to compute: on an H200
they were a third of an 8B model's step. Each function here is one kernel. It computes in float32
and rounds once, where torch rounds after each operation.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _add_norm(hidden, delta, weight, added, normed, width, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    first = tl.load(hidden + row + columns, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(delta + row + columns, mask=inside, other=0.0).to(tl.float32)
    total = (first + second).to(added.dtype.element_ty)
    tl.store(added + row + columns, total, mask=inside)
    total = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total) / width + epsilon)
    scale = scale * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row + columns, (total * scale).to(normed.dtype.element_ty), mask=inside)


@triton.jit
def _gate(gate_up, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(gate_up + row * 2 * width + columns, mask=inside).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + columns, mask=inside).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * width + columns, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _rotate(states, cos, sin, out, heads, tokens, stride, half, BLOCK: tl.constexpr):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, index = token // tokens, token % tokens
    columns = tl.arange(0, BLOCK)
    inside = columns < half
    source = states + token * stride + head * 2 * half
    first = tl.load(source + columns, mask=inside).to(tl.float32)
    second = tl.load(source + half + columns, mask=inside).to(tl.float32)
    c = tl.load(cos + token * half + columns, mask=inside).to(tl.float32)
    s = tl.load(sin + token * half + columns, mask=inside).to(tl.float32)
    target = out + ((row * heads + head) * tokens + index) * 2 * half
    tl.store(target + columns, (first * c - second * s).to(out.dtype.element_ty), mask=inside)
    tl.store(
        target + half + columns, (second * c + first * s).to(out.dtype.element_ty), mask=inside
    )


def add_norm(
    hidden: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """`hidden + delta`, and its RMS norm; both `[..., width]`."""
    hidden, delta, width = hidden.contiguous(), delta.contiguous(), hidden.shape[-1]
    added, normed = torch.empty_like(hidden), torch.empty_like(hidden)
    block = triton.next_power_of_2(width)
    with torch.cuda.device_of(hidden):
        _add_norm[(hidden.numel() // width,)](
            hidden, delta, weight, added, normed, width, epsilon, BLOCK=block, num_warps=8
        )
    return added, normed


def gate(gate_up: torch.Tensor) -> torch.Tensor:
    """SiLU of the first half of the last dimension, times the second; `[..., 2 * width]`."""
    gate_up, width = gate_up.contiguous(), gate_up.shape[-1] // 2
    out = gate_up.new_empty((*gate_up.shape[:-1], width))
    with torch.cuda.device_of(gate_up):
        grid = (out.numel() // width, triton.cdiv(width, 1024))
        _gate[grid](gate_up, out, width, BLOCK=1024)
    return out


def rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of `[rows, heads, tokens, head_dim]`, whose heads lie side by side in
    memory; `cos`, `sin`: `[rows, 1, tokens, head_dim / 2]`."""
    rows, heads, tokens, width = states.shape
    if states.stride()[1:] != (width, states.stride(2), 1):
        states = states.transpose(1, 2).contiguous().transpose(1, 2)
    if rows > 1 and states.stride(0) != tokens * states.stride(2):
        states = states.transpose(1, 2).contiguous().transpose(1, 2)
    shape = (rows, 1, tokens, width // 2)
    cos, sin = (table.expand(shape).contiguous() for table in (cos, sin))
    out = states.new_empty((rows, heads, tokens, width))
    with torch.cuda.device_of(states):
        _rotate[(rows * tokens, heads)](
            states, cos, sin, out, heads, tokens, states.stride(2), width // 2,
            BLOCK=triton.next_power_of_2(width // 2), num_warps=1,
        )  # fmt: skip
    return out
