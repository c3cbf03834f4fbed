"""Gemma 4's assistants: a small model that drafts from its target's own keys and values.

None of its layers computes keys and values. Each attends to those of the target's last layer of
the same kind (sliding or full attention) that computes its own, over all tokens of the text but
the last. It reads the embedding of a token and a hidden state, both of the target's width: for
the first draft token the text's last token and the target's last state after the final norm, then
each draft token and its own output. All queries of a window have the position of the text's last
token. Names and computation follow transformers 5.23 (`gemma4_assistant`, and
`SinglePositionMultiTokenCandidateGenerator`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F

from naive_speculate.infer.device import on_device
from naive_speculate.infer.ragged_cache import CacheRows
from naive_speculate.models.heads.model import check_sizes
from naive_speculate.models.llama.torch import rotated
from naive_speculate.models.llama.weights import RotaryTable, rotation

KINDS = ("sliding_attention", "full_attention")
"""Kinds of layers, of assistant and target."""
FAMILIES = ("gemma4_text", "gemma4_unified_text")
"""Families of targets, and of an assistant's own layers."""


@dataclass
class AssistantLayer:
    """The weights of one layer; `d` is the assistant's width."""

    kind: str
    attention_norm: torch.Tensor  # before attention, `[d]`
    query: torch.Tensor  # `[num_heads * head_dim, d]`
    query_norm: torch.Tensor  # of each head's query, `[head_dim]`
    output: torch.Tensor  # `[d, num_heads * head_dim]`
    attended_norm: torch.Tensor  # of attention's contribution, `[d]`
    mlp_norm: torch.Tensor  # before the MLP, `[d]`
    gate_up: torch.Tensor  # `[2 * inner, d]`
    down: torch.Tensor  # `[d, inner]`
    mlp_output_norm: torch.Tensor  # of the MLP's contribution, `[d]`
    scale: torch.Tensor  # a factor on its output, `[1]`


@dataclass
class Clusters:
    """A vocabulary in clusters: only the tokens of the `top_k` best ones are scored."""

    centroids: torch.Tensor  # `[num_clusters, d]`
    token_ids: torch.Tensor  # int64, `[num_clusters, vocab_size / num_clusters]`
    top_k: int

    def logits(self, hidden: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Logits `[rows, vocab_size]` of states `[rows, d]`. All other tokens of a row have the
        same logit, 1 below its least one. `head`: `[vocab_size, d]`."""
        best = F.linear(hidden, self.centroids).topk(self.top_k, dim=-1).indices
        token_ids = self.token_ids[best].flatten(1)
        scored = (head[token_ids] @ hidden[..., None])[..., 0]
        rest = scored.amin(dim=-1, keepdim=True) - 1
        return rest.repeat(1, len(head)).scatter_(-1, token_ids, scored)


@dataclass
class AssistantWeights:
    """All weights; `t` is the target's width."""

    read: torch.Tensor  # `pre_projection`, from an embedding and a state, `[d, 2 * t]`
    layers: list[AssistantLayer]
    norm: torch.Tensor  # `[d]`
    state: torch.Tensor  # `post_projection`, to the state for the next draft token, `[t, d]`
    head: torch.Tensor  # `[vocab_size, d]`
    clusters: Clusters | None
    norm_epsilon: float

    @property
    def num_parameters(self) -> int:
        """Number of parameters that a draft token takes."""
        of_layers = [part for layer in self.layers for part in vars(layer).values()]
        parts = [self.read, self.state, self.norm]
        parts += [part for part in of_layers if isinstance(part, torch.Tensor)]
        if self.clusters is None:
            return sum(part.numel() for part in [*parts, self.head])
        scored = self.clusters.top_k * self.clusters.token_ids.shape[1] * self.head.shape[1]
        return sum(part.numel() for part in [*parts, self.clusters.centroids]) + scored


class Attended(NamedTuple):
    """What the layers of one kind attend to, for all draft tokens of a window."""

    keys: torch.Tensor  # `[rows, num_kv_heads, num_tokens, head_dim]`
    values: torch.Tensor
    mask: torch.Tensor | None  # bool, `[rows, 1, 1, num_tokens]`; None for all
    rotation: tuple[torch.Tensor, torch.Tensor]  # of the queries


class AssistantHead:
    """An assistant for a target of Gemma 4. It has no cache.

    Args:
        weights: Its weights, on the target's device.
        window: The sliding window, in tokens before the last one of its text.
        rotary: The rotary embedding of each kind of layer.
        num_layers: Number of layers of its target.
        name: Its folder or Hub id.

    Attributes:
        layers, name, vocab_size, target_hidden_size: See `Head`.
        num_parameters: Number of parameters that a draft token takes.
    """

    role: ClassVar[str] = "assistant"

    def __init__(
        self,
        weights: AssistantWeights,
        window: int,
        rotary: dict[str, RotaryTable],
        num_layers: int,
        name: str,
    ) -> None:
        self.name, self.layers = name, (num_layers,)
        self.vocab_size, self.target_hidden_size = len(weights.head), len(weights.state)
        self.num_parameters = weights.num_parameters
        self.device, self.dtype = weights.norm.device, weights.norm.dtype
        self._weights, self._window, self._rotary = weights, window, rotary

    def check_target(self, target: Any) -> None:
        """See `Head` in `infer/protocols.py`."""
        check_sizes(self, target)
        self.sources(target)

    def sources(self, target: Any) -> dict[str, int]:
        """The target's layer that each kind of layer reads. Raises `ValueError` if it has none,
        or one whose heads do not fit."""
        layers = {}
        for layer in self._weights.layers:
            index, heads, width = _last_keys(target, layer.kind)
            layers[layer.kind] = index
            own, own_width = _heads(layer), len(layer.query_norm)
            if width != own_width or own % heads:
                raise ValueError(
                    f"head {self.name!r} has {own} heads of width {own_width} for layers of"
                    f" {layer.kind}; its target's layer {index} has keys of {heads} heads of"
                    f" width {width}"
                )
        return layers

    def see(self, rows: CacheRows, sources: dict[str, int]) -> dict[str, Attended]:
        """What a window attends to. `rows`: of the target's cache, with all tokens but the last
        one of each text; `sources`: see `sources`."""
        lengths, states = rows.lengths, rows.get_kv_states(list(sources.values()))
        ends = on_device(lengths, self.device)
        attended = {}
        for (kind, _), (keys, values) in zip(sources.items(), states, strict=True):
            tables = self._rotary[kind].up_to(max(lengths) + 1)
            first = 0
            if kind == "sliding_attention":
                first = max(0, min(lengths) - self._window - 1)
            mask = None
            if min(lengths) != max(lengths):
                at, known = torch.arange(first, max(lengths), device=self.device), ends[:, None]
                visible = at < known
                if kind == "sliding_attention":
                    visible &= at >= known - self._window - 1
                mask = visible[:, None, None]
            parts = [part[:, :, first:].to(self.device, self.dtype) for part in (keys, values)]
            rotated_by = rotation(tables, ends[:, None], self.dtype)
            attended[kind] = Attended(parts[0], parts[1], mask, rotated_by)
        return attended

    @torch.no_grad()
    def draft(
        self, embedded: torch.Tensor, states: torch.Tensor, attended: dict[str, Attended]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits of each row's next draft token, `[rows, vocab_size]`, and the state for the
        one after it, `[rows, t]`. `embedded`: the target's embeddings of the tokens before,
        `[rows, t]`; `states`: `[rows, t]`; `attended`: see `see`."""
        weights = self._weights
        both = torch.cat([embedded, states], dim=-1).to(self.device, self.dtype)
        hidden = F.linear(both, weights.read)
        for layer in weights.layers:
            hidden = hidden + self._attended(layer, hidden, attended[layer.kind])
            gate, up = F.linear(self._norm(hidden, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
            mlp = F.linear(F.gelu(gate, approximate="tanh") * up, layer.down)
            hidden = (hidden + self._norm(mlp, layer.mlp_output_norm)) * layer.scale
        hidden = self._norm(hidden, weights.norm)
        if weights.clusters is None:
            logits = F.linear(hidden, weights.head)
        else:
            logits = weights.clusters.logits(hidden, weights.head)
        return logits, F.linear(hidden, weights.state)

    def _attended(
        self, layer: AssistantLayer, hidden: torch.Tensor, rows: Attended
    ) -> torch.Tensor:
        """The contribution of a layer's attention to states `[rows, d]`."""
        queries = F.linear(self._norm(hidden, layer.attention_norm), layer.query)
        queries = self._norm(queries.unflatten(-1, (_heads(layer), -1)), layer.query_norm)
        attended = F.scaled_dot_product_attention(
            rotated(queries[:, :, None], *rows.rotation),
            rows.keys,
            rows.values,
            attn_mask=rows.mask,
            scale=1.0,
            enable_gqa=True,
        )
        output = F.linear(attended[:, :, 0].flatten(1), layer.output)
        return self._norm(output, layer.attended_norm)

    def _norm(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMS norm, in float32."""
        epsilon = self._weights.norm_epsilon
        return F.rms_norm(hidden.float(), weight.shape, weight.float(), epsilon).to(hidden.dtype)


def check_target(target: Any) -> None:
    """Raise a `ValueError` if a model is no target for an assistant."""
    family = getattr(getattr(target, "config", None), "model_type", type(target).__name__)
    if family not in FAMILIES or getattr(target, "model", None) is None:
        raise ValueError(
            "it is an assistant, which attends to the keys and values of a target of Gemma 4 in"
            f" transformers; this target is {family}"
        )


def _last_keys(target: Any, kind: str) -> tuple[int, int, int]:
    """The target's last layer of a kind that computes keys and values, their number of heads, and
    a head's width."""
    check_target(target)
    kinds = target.config.layer_types
    for index, layer in reversed(list(enumerate(target.model.get_decoder().layers))):
        attention = layer.self_attn
        if kinds[index] == kind and not attention.is_kv_shared_layer:
            width = attention.head_dim
            return index, attention.k_proj.out_features // width, width
    raise ValueError(f"an assistant reads a layer of {kind}, and its target has none")


def _heads(layer: AssistantLayer) -> int:
    return len(layer.query) // len(layer.query_norm)


def embedded_and_norm(target: Any) -> Sequence[Any]:
    """The target's embedding, which scales, and its final norm, as modules."""
    return target.model.get_input_embeddings(), target.model.get_decoder().norm
