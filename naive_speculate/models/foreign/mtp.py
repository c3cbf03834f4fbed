"""The multi-token prediction (MTP) layers that some checkpoints have after their own layers.

DeepSeek-AI 2024 (arXiv 2412.19437, section 2.2): norms of the next token's embedding and of the
hidden state, a projection of both, a decoder layer of the family, a norm, and the target's own
embedding and output layer. transformers' `MtpModel` computes it. Its loader finds the tensors of
the published sizes only, so they are read here. The layouts:

- `model.layers.N.*` and following after N layers: DeepSeek-V3, GLM-4.5
- `mtp.fc`, `mtp.pre_fc_norm_*`, `mtp.norm`, `mtp.layers.0.*`: Qwen3-Next, Qwen3.5, Mellum
- `model.mtp.layers.*`: MiMo-V2, with dense layers of sliding attention, and Inkling, with short
  convolutions and positions relative to the key instead of a rotary embedding

Each layer reads the output of the one before it and tokens one position later. Layers without a
projection of their own (Qwen's, after the first) are not read.
"""

import re
from copy import copy, deepcopy
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache
from naive_speculate.infer.transformers_model import (
    RaggedStore,
    TransformersLanguageModel,
    additive_mask,
    cache_argument,
)
from naive_speculate.models.files import check_complete, tensor_files

_NAMES = {
    ".final_layernorm.": ".post_norm.",  # MiMo-V2's, which transformers does not map
    ".pre_mlp_layernorm.": ".post_attention_layernorm.",
    ".hidden_norm.": ".hnorm.",  # Inkling's, which it maps in layers that are numbered from 0
    ".embed_norm.": ".enorm.",
    ".input_proj.": ".eh_proj.",
    ".transformer_block.": ".",
}
_PREFIX = r"(model\.|language_model\.)*"
# what each layer of its own has
_OWN = re.compile(r"layers\.\d+\.(enorm|hnorm|eh_proj|embed_norm|hidden_norm|input_proj)\.")
_SCALE = re.compile(r"[._](weight|input)_scale(_inv)?$|\.scales?$")  # of quantised weights
_MOST_LAYERS = 16  # those that are looked for; published checkpoints have at most 8


def mtp_tensors(target: Any) -> dict[str, Any]:
    """The file of each tensor of a target's MTP layers, by name; empty where its checkpoint
    has none. Reads the folder or the Hub's cache that the target was loaded from, and fetches
    nothing."""
    source = target.model.name_or_path if isinstance(target, TransformersLanguageModel) else None
    if not source:
        return {}
    after = "|".join(str(target.num_layers + index) for index in range(_MOST_LAYERS))
    own = re.compile(
        rf"{_PREFIX}(mtp\.(layers\.\d+\.)?|layers\.({after})\.)"
        r"(?!embed_tokens\.|shared_head\.head\.)"
    )
    files: dict[str, Any] = {}
    try:
        for path in tensor_files(source, own.match, fetch=False):
            with safe_open(path, framework="pt") as file:
                files |= dict.fromkeys(filter(own.match, file.keys()), path)
    except (
        ValueError,
        KeyError,
        TypeError,
        OSError,
        SafetensorError,
    ):  # it was not loaded from safetensors
        return {}
    last = max((_layer(name, target.num_layers) for name in files if _OWN.search(name)), default=0)
    return {name: path for name, path in files.items() if _layer(name, target.num_layers) <= last}


def _layer(name: str, num_target_layers: int) -> int:
    """The number of the MTP layer that a tensor belongs to; 0 for those of all layers."""
    number = re.search(r"(mtp\.)?layers\.(\d+)\.", name)
    return 0 if number is None else int(number[2]) - (0 if number[1] else num_target_layers)


class MtpHead:
    """A target's MTP layers as a draft head.

    At position i, layer 0 reads the embedding of token i + 1 and the target's last hidden state
    at token i, after its final norm, and predicts token i + 2. Layer n reads the embedding of
    token i + n + 1 and the output of layer n - 1 at i, and predicts token i + n + 2. After the
    last layer's draft, that layer drafts on from its own output. `target`: a model whose
    checkpoint has such layers. Raises `ValueError` if their tensors are missing, misshapen or
    quantised.

    Attributes:
        num_mtp_layers: How many there are.
        num_parameters: Number of parameters of one, which a draft token takes.
        layers, name, vocab_size: See `Head`.
    """

    def __init__(self, target: Any) -> None:
        try:
            self._mtp = _load(target.model, mtp_tensors(target), target.num_layers)
        except Exception as error:  # transformers raises any kind for odd values
            raise ValueError(
                f"the target's MTP layer cannot be loaded: {' '.join(str(error).split()):.300}"
            ) from None
        self.name, self.device, self.dtype = target.name, target.device, target.model.dtype
        self.layers, self.vocab_size = (target.num_layers,), target.vocab_size
        self._norm = target.model.get_decoder().norm
        self.num_parameters = sum(each.numel() for each in self._mtp.layers[0].parameters())
        self.num_mtp_layers = len(self._mtp.layers)
        self._cache_argument = cache_argument(self._mtp.layers[0])
        kinds = getattr(self._mtp.config, "layer_types", None)
        self._kinds = kinds or [None] * self.num_mtp_layers
        self._slots: dict[tuple[int, int], int] = {}

    def new_cache(self, batch_size: int) -> RaggedKVCache:
        """An empty cache for `batch_size` rows."""
        return RaggedKVCache(batch_size)

    @torch.no_grad()
    def read(
        self,
        layer: int,
        token_ids: torch.Tensor,
        states: torch.Tensor,
        rows: CacheRows,
        of_target: bool = False,
    ) -> torch.Tensor:
        """The outputs of one layer, shape `[rows, num_new, d]`. Its keys and values are written
        after the rows' ends, which do not move. `token_ids`: int64, shape `[rows, num_new]`;
        `states`: outputs of the layer before, or the target's states (`of_target`), shape `[rows,
        num_new, d]`."""
        if of_target:
            states = self._norm(states.to(self.device, self.dtype))
        if self._mtp.rotary_emb is not None:
            return self._read(layer, token_ids, states, rows, RaggedStore(rows))
        states_of_rows = []  # relative positions and convolutions are computed for one row
        for index, row in enumerate(rows.indices):
            one, at = rows.cache.rows([row]), slice(index, index + 1)
            store = ConvolvedStore(one, self._slots)
            states_of_rows.append(self._read(layer, token_ids[at], states[at], one, store))
        return torch.cat(states_of_rows)

    def _read(
        self,
        layer: int,
        token_ids: torch.Tensor,
        states: torch.Tensor,
        rows: CacheRows,
        store: RaggedStore,
    ) -> torch.Tensor:
        num_new, embedded = token_ids.shape[1], self._mtp.embed_tokens(token_ids)
        positions = rows.positions(num_new, self.device) + 1 + layer  # of the tokens that it reads
        kind = self._kinds[layer]
        window = self._mtp.config.sliding_window if "sliding" in (kind or "") else None
        rotary, rotated = self._mtp.rotary_emb, None
        if rotary is not None:
            own = {"layer_type": kind} if self._mtp.has_per_layer_rope else {}
            rotated = rotary(embedded, position_ids=positions, **own)
        hidden: torch.Tensor = self._mtp.layers[layer](
            embedded,
            states,
            position_embeddings=rotated,
            attention_mask=additive_mask(rows, num_new, self.device, self.dtype, window),
            position_ids=positions,
            **{self._cache_argument: store},
        )
        if self._mtp.use_shared_post_norm:
            hidden = self._mtp.shared_post_norm(hidden)
        return hidden

    @torch.no_grad()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of the token that an output predicts, shape `[..., vocab_size]`."""
        logits: torch.Tensor = self._mtp._project_to_logits(hidden)
        return logits


class ConvolvedStore(RaggedStore):
    """The cache of one row for layers with short convolutions, whose inputs are kept as keys are:
    so rolling back is the same. `slots`: the cache's layer of each layer's keys (-1) and
    convolutions, in the order of their first use."""

    def __init__(self, rows: CacheRows, slots: dict[tuple[int, int], int]) -> None:
        super().__init__(rows)
        self._slots = slots

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *_: Any, **__: Any) -> Any:
        return self.rows.write(self._slot(layer_idx, -1), key_states, value_states)

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Any:
        """None: `update_conv_state` has the inputs before."""
        return None

    def update_conv_state(
        self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """Keep new inputs `[1, width, num_new]`; returns them after those that the kernel reads
        before them."""
        inputs, kernel = conv_states.transpose(1, 2)[:, None], kwargs["conv_kernel_size"]
        kept, _ = self.rows.write(self._slot(layer_idx, state_idx), inputs, inputs[..., :0])
        return kept[:, 0, 1 - kernel - inputs.shape[2] :].transpose(1, 2)

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Number of keys, and the position of the first: each layer reads one token further."""
        return self.get_seq_length() + query_length, layer_idx + 1

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """The position of the first query."""
        return self.get_seq_length() + layer_idx + 1

    def _slot(self, layer_idx: int, state_idx: int) -> int:
        return self._slots.setdefault((layer_idx, state_idx), len(self._slots))


def _load(model: Any, tensors: dict[str, Any], num_target_layers: int) -> Any:
    """transformers' module with these tensors' layers."""
    from transformers.core_model_loading import convert_and_load_state_dict_in_model
    from transformers.modeling_layers import MtpModel
    from transformers.modeling_utils import LoadStateDictConfig
    from transformers.utils.generic import ContextManagers

    if scale := next(filter(_SCALE.search, tensors), None):
        raise ValueError(f"it is quantised ({scale}), which is not supported")
    like = copy(model)  # it shares the modules, but not the configuration
    count = 1 + max((_layer(name, num_target_layers) for name in tensors), default=0)
    like.config = _config(model, count, sparse=any(".experts." in name for name in tensors))
    with ContextManagers(MtpModel.get_init_context(model.dtype, False, False, None)):
        mtp = MtpModel(like, count)
    state, numbered = dict[str, Any](), any(_OWN.search(name) for name in tensors)
    for name, path in tensors.items():
        with safe_open(path, framework="pt") as file:
            own = _renamed(name)
            if numbered:  # transformers could take a number from 0 on for one after the target's
                at = num_target_layers + _layer(own, num_target_layers)
                own = re.sub(r"^(mtp\.)?layers\.\d+\.", f"layers.{at}.", own)
            state[own] = file.get_tensor(name)
    mapping: Any = mtp.get_weight_conversions(like)
    settings = LoadStateDictConfig(
        weight_mapping=mapping, device_map={"": model.device}, dtype=model.dtype
    )
    report, _ = convert_and_load_state_dict_in_model(
        model=mtp, state_dict=state, load_config=settings
    )
    mtp._adjust_missing_and_unexpected_keys(report)
    check_complete({"missing_keys": report.missing_keys, "mismatched_keys": report.mismatched_keys})
    mtp.tie_with_main_model(model)
    return mtp.eval()


def _config(model: Any, count: int, sparse: bool) -> Any:
    """The model's configuration with so many MTP layers, where the family's own does not declare
    them."""
    config = deepcopy(model.config)
    text = config.get_text_config(decoder=True)
    text.num_mtp_layers = count
    if (
        getattr(text, "layer_types", None) is not None
        and getattr(text, "mtp_layer_types", None) is None
    ):
        text.mtp_layer_types = [
            "sliding_attention" if text.model_type.startswith("mimo") else "full_attention"
        ] * count
    if (
        getattr(text, "mlp_layer_types", None) is not None
        and getattr(text, "mtp_mlp_layer_types", None) is None
    ):
        text.mtp_mlp_layer_types = ["sparse" if sparse else "dense"] * count
    return config


def _renamed(name: str) -> str:
    for theirs, ours in _NAMES.items():
        name = name.replace(theirs, ours)
    return re.sub(f"^{_PREFIX}", "", name)
