"""Makes an assistant of the tensors and the configuration that transformers 5.23 writes for
`Gemma4AssistantForCausalLM` and `Gemma4UnifiedAssistantForCausalLM`."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from naive_speculate.models.foreign.assistant import (
    FAMILIES,
    KINDS,
    AssistantHead,
    AssistantLayer,
    AssistantWeights,
    Clusters,
    check_target,
)
from naive_speculate.models.llama.weights import RotaryTable

Take = Callable[..., torch.Tensor]


def assistant_in(take: Take, config: Mapping[str, Any], target: Any, name: str) -> AssistantHead:
    """An assistant, on the device of its tensors. Raises `ValueError` or `KeyError` for odd
    values, a missing tensor, or a target of another width, vocabulary or family."""
    check_target(target)
    text = _layers_of(config)
    d, t, vocab = text.hidden_size, config.get("backbone_hidden_size"), text.vocab_size
    for what, own, theirs in (
        ("backbone_hidden_size", t, target.hidden_size),
        ("vocab_size", vocab, target.vocab_size),
    ):
        if own != theirs:
            other = "hidden_size" if own is t else what
            raise ValueError(f"its {what} is {own!r:.80}, the target's {other} is {theirs}")
    embedding = take("embed_tokens.weight", vocab, d)
    tied = config.get("tie_word_embeddings", True)
    weights = AssistantWeights(
        read=take("pre_projection.weight", d, 2 * target.hidden_size),
        layers=[_layer(take, text, index) for index in range(text.num_hidden_layers)],
        norm=take("norm.weight", d),
        state=take("post_projection.weight", target.hidden_size, d),
        head=embedding if tied else take("lm_head.weight", vocab, d),
        clusters=_clusters(take, config, vocab, d),
        norm_epsilon=text.rms_norm_eps,
    )
    rotary = _rotary(text, weights.norm.device)
    head = AssistantHead(weights, text.sliding_window, rotary, target.num_layers, name)
    head.sources(target)
    return head


def _layers_of(config: Mapping[str, Any]) -> Any:
    """The configuration of an assistant's layers, with transformers' defaults."""
    from transformers import CONFIG_MAPPING  # slow to import

    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise ValueError(f"text_config must be a mapping, got {text!r:.80}")
    family = text.get("model_type")
    if family not in FAMILIES:
        raise ValueError(f"text_config.model_type is {family!r:.80}, not one of {FAMILIES}")
    layers = CONFIG_MAPPING[family].from_dict(dict(text))
    count, kinds = layers.num_hidden_layers, layers.layer_types
    if count < 1 or len(kinds) != count or not set(kinds) <= set(KINDS):
        raise ValueError(
            f"text_config.layer_types must be {count} of {', '.join(KINDS)}, got {kinds!r:.80}"
        )
    if layers.num_kv_shared_layers not in (0, count):
        raise ValueError(
            f"text_config.num_kv_shared_layers is {layers.num_kv_shared_layers}, only all"
            f" {count} layers can be shared"
        )
    if layers.use_bidirectional_attention == "all":
        raise ValueError("text_config.use_bidirectional_attention 'all' is not supported")
    if type(layers.sliding_window) is not int or layers.sliding_window < 1:
        raise ValueError(f"text_config.sliding_window is {layers.sliding_window!r:.80}")
    return layers


def _layer(take: Take, text: Any, index: int) -> AssistantLayer:
    at, d, inner = f"layers.{index}.", text.hidden_size, text.intermediate_size
    query_norm = take(f"{at}self_attn.q_norm.weight", -1)
    heads = text.num_attention_heads * len(query_norm)
    gate, up = (take(f"{at}mlp.{part}_proj.weight", inner, d) for part in ("gate", "up"))
    return AssistantLayer(
        kind=text.layer_types[index],
        attention_norm=take(f"{at}input_layernorm.weight", d),
        query=take(f"{at}self_attn.q_proj.weight", heads, d),
        query_norm=query_norm,
        output=take(f"{at}self_attn.o_proj.weight", d, heads),
        attended_norm=take(f"{at}post_attention_layernorm.weight", d),
        mlp_norm=take(f"{at}pre_feedforward_layernorm.weight", d),
        gate_up=torch.cat([gate, up]),
        down=take(f"{at}mlp.down_proj.weight", d, inner),
        mlp_output_norm=take(f"{at}post_feedforward_layernorm.weight", d),
        scale=take(f"{at}layer_scalar", 1),
    )


def _clusters(take: Take, config: Mapping[str, Any], vocab: int, d: int) -> Clusters | None:
    if not config.get("use_ordered_embeddings"):
        return None
    count, top_k = (config.get(key) for key in ("num_centroids", "centroid_intermediate_top_k"))
    if type(count) is not int or count < 1 or vocab % count:
        raise ValueError(
            f"num_centroids must divide the vocabulary of {vocab} tokens, got {count!r:.80}"
        )
    if type(top_k) is not int or not 1 <= top_k <= count:
        raise ValueError(
            f"centroid_intermediate_top_k must be between 1 and {count}, got {top_k!r:.80}"
        )
    name = "masked_embedding.token_ordering"
    centroids = take("masked_embedding.centroids.weight", count, d)
    token_ids = take(name, vocab).to(torch.int64)
    if not torch.equal(token_ids.sort().values, torch.arange(vocab, device=token_ids.device)):
        raise ValueError(f"{name} must have each of the {vocab} tokens once")
    return Clusters(centroids, token_ids.unflatten(0, (count, -1)), top_k)


def _rotary(text: Any, device: torch.device) -> dict[str, RotaryTable]:
    from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRotaryEmbedding

    rotary = Gemma4TextRotaryEmbedding(text)
    return {
        kind: RotaryTable(
            getattr(rotary, f"{kind}_inv_freq").to(device),
            getattr(rotary, f"{kind}_attention_scaling"),
        )
        for kind in set(text.layer_types)
    }
