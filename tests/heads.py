"""Random draft heads as checkpoints in both layouts, block drafters in that of z-lab/dflash, and
what they compute, once more without cache or batch.

Tensors have their layouts' names, but for `layer.` before those of the first layer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoConfig

from naive_speculate.pair import BUNDLED_PAIR

Tensors = dict[str, torch.Tensor]
LAYOUTS = ("eagle", "speculators")
VOCAB, TARGET_WIDTH = 97, 32  # of `tiny_llama`
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": TARGET_WIDTH,
    "intermediate_size": 40,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "vocab_size": VOCAB,
}


def head_config(**changes: Any) -> dict[str, Any]:
    """The numbers of a layer."""
    return CONFIG | changes


def head_tensors(
    config: dict[str, Any],
    seed: int = 7,
    known: int | None = 60,
    own_embeddings: bool = False,
    adds: bool = False,
    normed_input: bool = False,
    normed_layers: bool = False,
    biased: bool = False,
) -> Tensors:
    """Random weights by their bare names; `known` of the target's tokens, all for None. `adds`:
    states are added to embeddings, not read in addition. `normed_input`: the target's states are
    normed before they are fused, `normed_layers`: those of each layer. `biased`: the projections
    to queries, keys and values have biases."""
    random, generator = randomly(seed)
    d, vocab = config["hidden_size"], config["vocab_size"]
    tensors = {
        "fc.weight": random(d, 3 * TARGET_WIDTH),
        "norm.weight": random(d),
        "lm_head.weight": random(vocab if known is None else known, d),
        "hidden_norm.weight" if adds else "layer.hidden_norm.weight": random(d),
    }
    for index in range(config["num_hidden_layers"]):
        tensors |= layer_tensors(config, _layer(index), d if adds or index else 2 * d, random)
    if biased:
        projections = [
            name
            for name in tensors
            if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
        ]
        tensors |= {
            name.replace("weight", "bias"): random(len(tensors[name])) for name in projections
        }
    if adds:
        tensors["state_proj.weight"] = random(d, d)
    if normed_input:
        tensors["input_norm.weight"] = random(3 * TARGET_WIDTH)
    if normed_layers:
        tensors |= {f"fc_norm.{index}.weight": random(TARGET_WIDTH) for index in range(3)}
    if known is not None:
        tokens = torch.randperm(vocab, generator=generator)[:known].sort().values
        tensors["d2t"] = tokens - torch.arange(known)
        tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill_(0, tokens, True)
    if own_embeddings or d != TARGET_WIDTH:
        tensors["embed_tokens.weight"] = random(vocab, d)
    return tensors


def randomly(seed: int) -> tuple[Callable[..., torch.Tensor], torch.Generator]:
    """A function that makes random weights of a shape, and its generator."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * (0.3 if len(shape) == 2 else 0.2) + (
            1 if len(shape) == 1 else 0
        )

    return random, generator


def layer_tensors(
    config: dict[str, Any], at: str, read: int, random: Callable[..., torch.Tensor]
) -> Tensors:
    """The weights of a Llama's layer by their names after `at`; its attention reads states of
    width `read`."""
    d, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", d // config["num_attention_heads"])
    heads, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    return {
        f"{at}input_layernorm.weight": random(d),
        f"{at}post_attention_layernorm.weight": random(d),
        f"{at}self_attn.q_proj.weight": random(heads, read),
        f"{at}self_attn.k_proj.weight": random(kv, read),
        f"{at}self_attn.v_proj.weight": random(kv, read),
        f"{at}self_attn.o_proj.weight": random(d, heads),
        f"{at}mlp.gate_proj.weight": random(inner, d),
        f"{at}mlp.up_proj.weight": random(inner, d),
        f"{at}mlp.down_proj.weight": random(d, inner),
    }


def _layer(index: int) -> str:
    return f"layers.{index}." if index else "layer."


def save_head(
    folder: Path, layout: str, config: dict[str, Any], tensors: Tensors, **more: Any
) -> Path:
    """As the EAGLE authors have it, or vLLM's speculators."""
    layer = "midlayer." if layout == "eagle" else "layers.0."
    named = {
        name.replace("layer.", layer, 1) if name.startswith("layer.") else name: t
        for name, t in tensors.items()
    }
    sizes = {"draft_vocab_size": len(tensors["lm_head.weight"])}
    if layout == "eagle":
        whole = {"architectures": ["LlamaForCausalLMEagle3"], **config, **sizes, **more}
    else:
        layer_config = {"transformer_layer_config": config, "speculators_model_type": "eagle3"}
        whole = {"architectures": ["Eagle3Speculator"], **layer_config, **sizes, **more}
    return save_tensors(folder, named, whole)


def save_tensors(folder: Path, tensors: Tensors, config: dict[str, Any]) -> Path:
    """A checkpoint of these tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )
    return folder


def rms(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    return weight * x / (x.pow(2).mean(-1, keepdim=True) + epsilon).sqrt()


def turned(x: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotary embedding of positions 0, 1, 2 …; x `[heads, tokens, head_dim]`."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[1])[:, None] * theta ** (-torch.arange(half) / half)
    cos, sin = (
        torch.cat([table, table], dim=-1).to(x.dtype) for table in (angles.cos(), angles.sin())
    )
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


def eager_fused(tensors: Tensors, config: dict[str, Any], features: torch.Tensor) -> torch.Tensor:
    """The target's states as one of the head's width."""
    if "input_norm.weight" in tensors:
        features = rms(
            features, tensors["input_norm.weight"].to(features.dtype), config["rms_norm_eps"]
        )
    if "fc_norm.0.weight" in tensors:
        parts = zip(
            features.chunk(3, dim=-1),
            (tensors[f"fc_norm.{index}.weight"] for index in range(3)),
            strict=True,
        )
        features = torch.cat(
            [rms(part, norm.to(part.dtype), config["rms_norm_eps"]) for part, norm in parts], dim=-1
        )
    return features @ tensors["fc.weight"].to(features.dtype).T


def eager_layers(
    tensors: Tensors,
    config: dict[str, Any],
    embedding: torch.Tensor,
    tokens: list[int],
    states: torch.Tensor,
    **options: Any,
) -> torch.Tensor:
    """The last layer's output at every position, from tokens and states `[len(tokens), d]`."""
    epsilon = config["rms_norm_eps"]
    adds = "state_proj.weight" in tensors
    normed = rms(
        states,
        tensors["hidden_norm.weight" if adds else "layer.hidden_norm.weight"].to(states.dtype),
        epsilon,
    )
    if adds:
        stream = embedding[tokens] + normed @ tensors["state_proj.weight"].to(states.dtype).T
        beside = normed[:, :0]
    else:
        stream, beside = (normed if options.get("norm_before_residual") else states), normed
    for index in range(config["num_hidden_layers"]):
        norm = tensors[f"{_layer(index)}input_layernorm.weight"].to(states.dtype)
        read = rms(embedding[tokens] if beside.numel() else stream, norm, epsilon)
        kind = config.get("layer_types", ["full_attention"] * (index + 1))[index]
        window = config["sliding_window"] if kind == "sliding_attention" else len(tokens)
        seen = torch.cat([read, beside], dim=-1)
        stream = eager_layer(
            tensors,
            config,
            _layer(index),
            stream,
            seen,
            lambda back, window=window: (back < 0) | (back >= window),
        )
        beside = beside[:, :0]
    return stream


def eager_layer(
    tensors: Tensors,
    config: dict[str, Any],
    at: str,
    stream: torch.Tensor,
    seen: torch.Tensor,
    hidden: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The residual stream `[tokens, d]` after a layer. Its attention reads `seen`, of which the
    last are the stream's tokens; `hidden`: whether a token at a distance before another is
    hidden from it."""
    epsilon, count = config["rms_norm_eps"], len(stream)
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])

    def w(name: str) -> torch.Tensor:
        return tensors[f"{at}{name}.weight"].to(stream.dtype)

    def projected(part: str) -> torch.Tensor:
        bias = tensors.get(f"{at}self_attn.{part}_proj.bias", torch.zeros(1)).to(stream.dtype)
        return (
            (seen @ w(f"self_attn.{part}_proj").T + bias)
            .unflatten(-1, (-1, head_dim))
            .transpose(0, 1)
        )

    q, k, v = map(projected, "qkv")
    if f"{at}self_attn.q_norm.weight" in tensors:
        q, k = rms(q, w("self_attn.q_norm"), epsilon), rms(k, w("self_attn.k_norm"), epsilon)
    q, k = turned(q, config["rope_theta"])[:, -count:], turned(k, config["rope_theta"])
    k, v = (
        x.repeat_interleave(config["num_attention_heads"] // config["num_key_value_heads"], dim=0)
        for x in (k, v)
    )
    scores, place = q @ k.transpose(1, 2) / head_dim**0.5, torch.arange(len(seen))
    attended = scores.masked_fill(hidden(place[-count:, None] - place), -torch.inf).softmax(-1) @ v
    stream = stream + attended.transpose(0, 1).flatten(1) @ w("self_attn.o_proj").T
    x = rms(stream, w("post_attention_layernorm"), epsilon)
    return (
        stream
        + (F.silu(x @ w("mlp.gate_proj").T) * (x @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    )


def eager_logits(tensors: Tensors, config: dict[str, Any], hidden: torch.Tensor) -> torch.Tensor:
    """Logits in the target's tokens, for states `[..., d]`."""
    normed = rms(hidden, tensors["norm.weight"].to(hidden.dtype), config["rms_norm_eps"])
    logits = normed @ tensors["lm_head.weight"].to(hidden.dtype).T
    if "d2t" not in tensors:
        return logits
    found = logits.new_full((*logits.shape[:-1], config["vocab_size"]), -torch.inf)
    found[..., torch.arange(logits.shape[-1]) + tensors["d2t"]] = logits
    return found


def save_bundled_head(folder: Path) -> Path:
    """A random head for the bundled target: narrower, and with few of its tokens."""
    target = AutoConfig.from_pretrained(BUNDLED_PAIR / "target")
    config = head_config(hidden_size=64, head_dim=16, vocab_size=target.vocab_size)
    tensors = head_tensors(config, known=1000) | {
        "fc.weight": torch.randn(64, 3 * target.hidden_size) * 0.3
    }
    return save_head(folder, "speculators", config, tensors)


def eager_fed_back(
    tensors: Tensors, config: dict[str, Any], hidden: torch.Tensor, **options: Any
) -> torch.Tensor:
    """The state that the next draft token reads, of the last layer's output."""
    nested = options.get("eagle_config", {})
    if not (options.get("norm_output") or nested.get("norm_output")):
        return hidden
    return rms(hidden, tensors["norm.weight"].to(hidden.dtype), config["rms_norm_eps"])


def eager_window(
    tensors: Tensors,
    config: dict[str, Any],
    embedding: torch.Tensor,
    tokens: list[int],
    features: torch.Tensor,
    drafts: list[int],
    **options: Any,
) -> torch.Tensor:
    """Logits from which each draft of a window was drawn, `[len(drafts), vocab_size]`.

    Args:
        tokens: All committed ones.
        features: The target's at all of them but the last.
    """
    embedding = tensors.get("embed_tokens.weight", embedding).to(features.dtype)
    states, read = eager_fused(tensors, config, features), tokens[1:]
    found = []
    for draft in drafts:
        out = eager_layers(tensors, config, embedding, read, states, **options)[-1:]
        found.append(eager_logits(tensors, config, out[0]))
        states, read = (
            torch.cat([states, eager_fed_back(tensors, config, out, **options)]),
            [*read, draft],
        )
    return torch.stack(found)


# Block drafters


BLOCK_SIZE = 5
BLOCK_CONFIG = CONFIG | {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "attention_bias": False,
    "block_size": BLOCK_SIZE,
    "dflash_config": {"mask_token_id": 96, "target_layer_ids": [0, 1, 2]},
    "head_dim": 8,
    "layer_types": ["full_attention", "full_attention"],
    "num_hidden_layers": 2,
    "num_target_layers": 4,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
}


def block_tensors(
    config: dict[str, Any] = BLOCK_CONFIG, known: int | None = None, num_layers: int = 3
) -> Tensors:
    """Random weights that read `num_layers` layers; with `known`, an output matrix for so many
    of the target's tokens."""
    random, generator = randomly(7)
    d, head_dim = config["hidden_size"], config["head_dim"]
    tensors = {
        "fc.weight": random(d, num_layers * TARGET_WIDTH),
        "hidden_norm.weight": random(d),
        "norm.weight": random(d),
    }
    for index in range(config["num_hidden_layers"]):
        at = f"layers.{index}."
        tensors |= layer_tensors(config, at, d, random)
        tensors |= {f"{at}self_attn.{part}_norm.weight": random(head_dim) for part in "qk"}
    if known is not None:
        tokens = torch.randperm(VOCAB, generator=generator)[:known].sort().values
        tensors |= {"lm_head.weight": random(known, d), "d2t": tokens - torch.arange(known)}
    return tensors


def _hidden(back: torch.Tensor, window: float) -> torch.Tensor:
    """What a position of a block does not see: a sliding layer is causal within its block."""
    return (back >= window) | (back < 0) if window < torch.inf else torch.zeros_like(back).bool()


def eager_block(
    tensors: Tensors,
    config: dict[str, Any],
    embedding: torch.Tensor,
    output: torch.Tensor,
    token: int,
    features: torch.Tensor,
) -> torch.Tensor:
    """Logits of the draft tokens after `token`, `[block_size - 1, vocab_size]`; `features` are
    the target's before it."""
    masks = [config["dflash_config"]["mask_token_id"]] * (config["block_size"] - 1)
    stream = embedding[[token, *masks]]
    context = rms(
        features @ tensors["fc.weight"].T, tensors["hidden_norm.weight"], config["rms_norm_eps"]
    )
    for index, kind in enumerate(config["layer_types"]):
        at, window = (
            f"layers.{index}.",
            config["sliding_window"] if kind == "sliding_attention" else torch.inf,
        )
        read = rms(stream, tensors[f"{at}input_layernorm.weight"], config["rms_norm_eps"])
        seen = torch.cat([context, read])
        stream = eager_layer(
            tensors, config, at, stream, seen, lambda back, window=window: _hidden(back, window)
        )
    return eager_logits({"lm_head.weight": output} | tensors, config, stream[1:])
