"""The tiny Llama in numpy, as dejavuu calls models. It runs in that engine's own environment."""

from typing import Any

import numpy as np
from dejavuu.core.verifier import Verifier
from safetensors.numpy import load_file

HEADS, EPSILON, ROPE_BASE = 2, 1e-5, 1e4


class Llama(Verifier):  # type: ignore[misc]
    """The tiny Llama in numpy, of one layer."""

    supports_tree = True

    def __init__(self, folder: str) -> None:
        tensors = load_file(f"{folder}/target/model.safetensors")
        self.w = {name.removeprefix("model.layers.0."): value for name, value in tensors.items()}

    def empty_kv(self) -> Any:
        """No keys, no values; `[1, heads, tokens, size]`."""
        none = np.zeros((1, HEADS, 0, len(self.w["model.norm.weight"]) // HEADS), np.float32)
        return [(none, none)]

    def forward(self, token_ids, past, past_len, position_ids=None, attn_bias=None):  # type: ignore
        """Logits `[tokens, vocab_size]`, keys and values, no hidden states."""
        count = len(token_ids)
        at = np.arange(past_len, past_len + count) if position_ids is None else position_ids[0]
        if attn_bias is None:
            attn_bias = np.triu(np.full((count, past_len + count), -1e9), past_len + 1)
        x = self.w["model.embed_tokens.weight"][token_ids]
        normed = self.norm(x, "input_layernorm")
        q, k, v = (
            (normed @ self.w[f"self_attn.{name}_proj.weight"].T).reshape(count, HEADS, -1)
            for name in "qkv"
        )
        k, v = (
            np.concatenate([old[0], new.swapaxes(0, 1)], axis=1)
            for old, new in zip(past[0], (rotated(k, at), v), strict=True)
        )
        scores = rotated(q, at).swapaxes(0, 1) @ k.swapaxes(1, 2) / k.shape[-1] ** 0.5 + attn_bias
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)).reshape(HEADS, count, -1) @ v
        x = x + mixed.swapaxes(0, 1).reshape(count, -1) @ self.w["self_attn.o_proj.weight"].T
        normed = self.norm(x, "post_attention_layernorm")
        gate = normed @ self.w["mlp.gate_proj.weight"].T
        gate = gate / (1 + np.exp(-gate)) * (normed @ self.w["mlp.up_proj.weight"].T)
        x = x + gate @ self.w["mlp.down_proj.weight"].T
        return self.norm(x, "model.norm") @ self.w["lm_head.weight"].T, [(k[None], v[None])], None

    def norm(self, x: Any, name: str) -> Any:
        """RMSNorm."""
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * self.w[f"{name}.weight"]


def rotated(x: Any, positions: Any) -> Any:
    """Rotary embedding of `[tokens, heads, size]`."""
    half = x.shape[-1] // 2
    angles = np.outer(positions, ROPE_BASE ** (-np.arange(half) / half))[:, None]
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
