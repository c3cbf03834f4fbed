"""Shape and weights of a Llama-like model, from transformers' configurations and weights.

Llama, Qwen2, Qwen3 and Mistral differ in four details, each a field here: a bias on the query,
key and value projections (Qwen2), RMS norms on each head's queries and keys (Qwen3), a sliding
window (Mistral, some Qwen2), and the scaling of the rotary frequencies.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from naive_speculate.models.llama.rounded import Basis

_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
_ROPE_KINDS = (
    "default",
    "linear",
    "llama3",
    "yarn",
)  # rotary kinds whose frequencies do not depend on the sequence length


@dataclass(frozen=True)
class LlamaShape:
    """The sizes that determine how the weights are used."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_epsilon: float
    # one entry per layer: the sliding window in tokens, the token itself included; None for full
    # attention
    windows: tuple[int | None, ...]


@dataclass
class LlamaLayer:
    """The weights of one layer; matrices are `[out, in]` as in `torch.nn.Linear`."""

    attention_norm: torch.Tensor
    # queries, keys and values, concatenated: `[(num_heads + 2 * num_kv_heads) * head_dim,
    # hidden_size]`
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    # q_norm, k_norm: weights of the RMS norms over each head, `[head_dim]`; None where the family
    # has none
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: torch.Tensor
    output_bias: torch.Tensor | None
    mlp_norm: torch.Tensor
    # gate and up projection, concatenated: `[2 * intermediate_size, hidden_size]`
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass
class LlamaWeights:
    """All weights. `head` is the same tensor as `embedding` where they are tied and not rounded.
    `basis`: the coordinates of the residual stream where they are rounded, and `output`: the
    matrix before the logits, rounded in its own coordinates."""

    embedding: torch.Tensor
    layers: list[LlamaLayer]
    norm: torch.Tensor
    head: torch.Tensor
    basis: Basis | None = field(default=None, kw_only=True)
    output: torch.Tensor | None = field(default=None, kw_only=True)


class RotaryTable:
    """Cosines and sines of the rotary embedding, for as many positions as were requested so far,
    from frequencies `[head_dim / 2]`. `scaling` is a factor on both (YaRN's attention factor; 1
    otherwise)."""

    def __init__(self, inv_freq: torch.Tensor, scaling: float) -> None:
        self._inv_freq = inv_freq.float()
        self._scaling = scaling
        self._tables = self._compute(1)

    def up_to(self, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines, float32, shape `[num_positions or more, head_dim / 2]`; the same
        tensors until more are needed."""
        tables = self._tables  # read once: other threads may replace it
        if num_positions > tables[0].shape[0]:
            self._tables = tables = self._compute(num_positions)
        return tables

    def _compute(self, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(num_positions, device=self._inv_freq.device, dtype=torch.float32)
        angles = positions[:, None] * self._inv_freq
        return angles.cos() * self._scaling, angles.sin() * self._scaling


def rotation(
    tables: tuple[torch.Tensor, torch.Tensor], positions: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines at positions `[rows, tokens]`, shape `[rows, 1, tokens, head_dim / 2]`."""
    cos, sin = (table[positions][:, None].to(dtype) for table in tables)
    return cos, sin


def default_rotary(
    theta: float, head_dim: int, device: torch.device, slower: float | torch.Tensor = 1.0
) -> RotaryTable:
    """transformers' unscaled rotary embedding; frequencies are divided by `slower`, one number
    or one per frequency."""
    widths = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    return RotaryTable((1.0 / theta**widths / slower).to(device), 1.0)


def is_supported(config: Any) -> str | None:
    """Why `LlamaLanguageModel` cannot run a transformers configuration, or None if it can."""
    if config.model_type not in _FAMILIES:
        return f"model_type is {config.model_type}, not one of {', '.join(_FAMILIES)}"
    rope: dict[str, Any] = config.rope_parameters or {}
    if (kind := rope.get("rope_type", "default")) not in _ROPE_KINDS:
        return f"rope_type is {kind}, not one of {', '.join(_ROPE_KINDS)}"
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        return "the rotary embedding covers a part of each head only"
    if config.hidden_act not in ("silu", "swish"):
        return f"hidden_act is {config.hidden_act}, not silu"
    if getattr(config, "mlp_bias", False):
        return "the MLP has biases"
    if getattr(config, "quantization_config", None) is not None:
        return "the weights are quantized"
    return None


def shape_in(config: Any) -> LlamaShape:
    """The shape of a supported configuration."""
    window = getattr(config, "sliding_window", None)
    default = (
        "full_attention" if window is None or config.model_type == "llama" else "sliding_attention"
    )
    kinds = getattr(config, "layer_types", None) or [default] * config.num_hidden_layers
    return LlamaShape(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None)
        or config.hidden_size // config.num_attention_heads,
        norm_epsilon=float(config.rms_norm_eps),
        windows=tuple(window if kind == "sliding_attention" else None for kind in kinds),
    )


def layer_shapes(config: Any, read: int | None = None) -> dict[str, tuple[int, ...]]:
    """Shapes of a layer's matrices and norms by name; `read` is the width of the attention's
    input where it is not d."""
    d, inner, head_dim = config.hidden_size, config.intermediate_size, shape_in(config).head_dim
    queries, keys = config.num_attention_heads * head_dim, config.num_key_value_heads * head_dim
    return {
        "input_layernorm.weight": (d,),
        "post_attention_layernorm.weight": (d,),
        "self_attn.q_proj.weight": (queries, read or d),
        "self_attn.k_proj.weight": (keys, read or d),
        "self_attn.v_proj.weight": (keys, read or d),
        "self_attn.o_proj.weight": (d, queries),
        "mlp.gate_proj.weight": (inner, d),
        "mlp.up_proj.weight": (inner, d),
        "mlp.down_proj.weight": (d, inner),
    }


def weights_in(
    state: Mapping[str, torch.Tensor],
    num_layers: int,
    tied: bool = False,
    change: Callable[[LlamaLayer], LlamaLayer] = lambda layer: layer,
) -> LlamaWeights:
    """The weights by transformers' names, each layer changed when it is read; the head is the
    embedding where they are tied or `lm_head.weight` is missing."""
    embedding = state["model.embed_tokens.weight"]
    return LlamaWeights(
        embedding=embedding,
        layers=[change(layer_in(state, f"model.layers.{index}.")) for index in range(num_layers)],
        norm=state["model.norm.weight"],
        head=embedding if tied else state.get("lm_head.weight", embedding),
    )


def layer_in(state: Mapping[str, torch.Tensor], prefix: str) -> LlamaLayer:
    """The layer whose tensors have names with this prefix; each tensor is read once."""
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    projections = [f"{attention}{name}_proj." for name in "qkv"]
    biased = projections[0] + "bias" in state
    return LlamaLayer(
        attention_norm=state[prefix + "input_layernorm.weight"],
        qkv=torch.cat([state[projection + "weight"] for projection in projections]),
        qkv_bias=torch.cat([state[projection + "bias"] for projection in projections])
        if biased
        else None,
        q_norm=state.get(attention + "q_norm.weight"),
        k_norm=state.get(attention + "k_norm.weight"),
        output=state[attention + "o_proj.weight"],
        output_bias=state.get(attention + "o_proj.bias"),
        mlp_norm=state[prefix + "post_attention_layernorm.weight"],
        gate_up=torch.cat([state[f"{mlp}{name}_proj.weight"] for name in ("gate", "up")]),
        down=state[mlp + "down_proj.weight"],
    )
