"""The multi-token prediction (MTP) layer that some checkpoints have after their own layers.

DeepSeek-AI 2024 (arXiv 2412.19437, section 2.2): norms of the next token's embedding and of the
hidden state, a projection of both, a decoder layer of the family, a norm, and the target's own
embedding and output layer. transformers' `MtpModel` computes it. Its loader finds the tensors of
the published sizes only, so they are read here. The layouts:

- `model.layers.N.*` after N layers: DeepSeek-V3, GLM-4.5
- `mtp.fc`, `mtp.pre_fc_norm_*`, `mtp.norm`, `mtp.layers.0.*`: Qwen3-Next, Qwen3.5, Mellum
- `model.mtp.layers.0.*`: MiMo-V2, with a dense layer of sliding attention

Of several MTP layers, the first drafts all tokens.
"""

import re
from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from naive_speculate.infer.device import on_device
from naive_speculate.infer.files import tensor_files
from naive_speculate.infer.load import check_complete
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache
from naive_speculate.infer.transformers_model import (
    RaggedStore,
    TransformersLanguageModel,
    additive_mask,
)

_NAMES = {".final_layernorm.": ".post_norm.", ".pre_mlp_layernorm.": ".post_attention_layernorm."}
"""MiMo-V2's names that transformers does not map."""
_PREFIX = r"(model\.|language_model\.)*"


def mtp_tensors(target: Any) -> dict[str, Any]:
    """The file of each tensor of a target's first MTP layer, by name; empty where its checkpoint
    has none. Reads the folder or the Hub's cache that the target was loaded from, and fetches
    nothing."""
    source = target.model.name_or_path if isinstance(target, TransformersLanguageModel) else None
    if not source:
        return {}
    own = re.compile(
        rf"{_PREFIX}(mtp\.(?!layers\.[1-9])|layers\.{target.num_layers}\.)(?!embed_tokens\.|shared_head\.head\.)"
    )
    found: dict[str, Any] = {}
    try:
        for path in tensor_files(source, own.match, fetch=False):
            with safe_open(path, framework="pt") as file:
                found |= dict.fromkeys(filter(own.match, file.keys()), path)
    except (
        ValueError,
        KeyError,
        TypeError,
        OSError,
        SafetensorError,
    ):  # it was not loaded from safetensors
        return {}
    return found


class MtpHead:
    """A target's first MTP layer as a draft head; see `DraftHead` for the methods.

    At position i it reads the embedding of token i + 1 and the target's last hidden state at
    token i, after its final norm, and predicts token i + 2. The next draft token is drafted from
    its own output in place of the target's state. `target`: a model whose checkpoint has such a
    layer. Raises `ValueError` if its tensors are missing, misshapen or quantised.
    """

    def __init__(self, target: Any) -> None:
        try:
            self._mtp = _load(target.model, mtp_tensors(target))
        except Exception as error:  # transformers raises any kind for odd values
            raise ValueError(
                f"the target's MTP layer cannot be loaded: {' '.join(str(error).split()):.300}"
            ) from None
        self.name, self.device, self.dtype = target.name, target.device, target.model.dtype
        self.layers, self.vocab_size = (target.num_layers,), target.vocab_size
        self._norm = target.model.get_decoder().norm
        self.num_parameters = sum(parameter.numel() for parameter in self._mtp.layers.parameters())
        kind = (getattr(self._mtp.config, "layer_types", None) or [None])[0]
        self._window = self._mtp.config.sliding_window if kind == "sliding_attention" else None
        self._rotary = {"layer_type": kind} if self._mtp.has_per_layer_rope else {}

    def new_cache(self, batch_size: int) -> RaggedKVCache:
        """An empty cache for `batch_size` rows."""
        return RaggedKVCache(batch_size)

    @torch.no_grad()
    def forward(
        self,
        token_ids: torch.Tensor,
        states: torch.Tensor,
        rows: CacheRows,
        last: Sequence[int],
        of_target: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `DraftHead.forward`."""
        if of_target:
            states = self._norm(states.to(self.device, self.dtype))
        num_new, embedded = token_ids.shape[1], self._mtp.embed_tokens(token_ids)
        positions = rows.positions(num_new, self.device) + 1  # those of the tokens that it reads
        hidden = self._mtp.layers[0](
            embedded,
            states,
            position_embeddings=self._mtp.rotary_emb(
                embedded, position_ids=positions, **self._rotary
            ),
            attention_mask=additive_mask(rows, num_new, self.device, self.dtype, self._window),
            position_ids=positions,
            past_key_values=RaggedStore(rows),
        )
        rows.advance(num_new)
        hidden = hidden[torch.arange(len(last), device=self.device), on_device(last, self.device)]
        return self._mtp._project_to_logits(hidden), hidden


def _load(model: Any, tensors: dict[str, Any]) -> Any:
    """transformers' module with one layer, from these tensors."""
    from transformers.core_model_loading import convert_and_load_state_dict_in_model
    from transformers.modeling_layers import MtpModel
    from transformers.modeling_utils import LoadStateDictConfig
    from transformers.utils.generic import ContextManagers

    if scale := next((name for name in tensors if "scale" in name.rsplit(".", 1)[-1]), None):
        raise ValueError(f"it is quantised ({scale}), which is not supported")
    like = copy(model)  # it shares the modules, but not the configuration
    like.config = _config(model, sparse=any(".experts." in name for name in tensors))
    with ContextManagers(MtpModel.get_init_context(model.dtype, False, False, None)):
        mtp = MtpModel(like, 1)
    state = {}
    for name, path in tensors.items():
        with safe_open(path, framework="pt") as file:
            state[_renamed(name)] = file.get_tensor(name)
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


def _config(model: Any, sparse: bool) -> Any:
    """The model's configuration with one MTP layer, where the family's own does not declare it."""
    config = deepcopy(model.config)
    text = config.get_text_config(decoder=True)
    text.num_mtp_layers = 1
    if (
        getattr(text, "layer_types", None) is not None
        and getattr(text, "mtp_layer_types", None) is None
    ):
        text.mtp_layer_types = [
            "sliding_attention" if text.model_type.startswith("mimo") else "full_attention"
        ]
    if (
        getattr(text, "mlp_layer_types", None) is not None
        and getattr(text, "mtp_mlp_layer_types", None) is None
    ):
        text.mtp_mlp_layer_types = ["sparse" if sparse else "dense"]
    return config


def _renamed(name: str) -> str:
    for theirs, ours in _NAMES.items():
        name = name.replace(theirs, ours)
    return re.sub(f"^{_PREFIX}", "", name)
