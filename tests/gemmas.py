"""Tiny random targets of Gemma 4 and their assistants, made by transformers' own classes, and what
its `generate` drafts with them."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from transformers import (
    Gemma4AssistantConfig,
    Gemma4AssistantForCausalLM,
    Gemma4Config,
    Gemma4ForCausalLM,
    Gemma4ForConditionalGeneration,
    Gemma4TextConfig,
    Gemma4UnifiedAssistantConfig,
    Gemma4UnifiedAssistantForCausalLM,
    Gemma4UnifiedForCausalLM,
    Gemma4UnifiedTextConfig,
)
from transformers.generation import candidate_generator

VOCAB, WIDTH, WINDOW = 48, 16, 5
KINDS = ["sliding_attention", "full_attention"]
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 16,
    "sliding_window": WINDOW,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
SHARING = {"num_kv_shared_layers": 2, "hidden_size_per_layer_input": 4}
ORDERED = {"use_ordered_embeddings": True, "num_centroids": 12, "centroid_intermediate_top_k": 4}
TARGETS: dict[str, tuple[Any, Any, dict[str, Any], dict[str, Any]]] = {
    # names: the target's class, the assistant's, and changes of both
    "gemma 4": (Gemma4ForCausalLM, Gemma4AssistantForCausalLM, {}, {}),
    "clusters": (Gemma4ForCausalLM, Gemma4AssistantForCausalLM, {}, ORDERED),
    "shared": (Gemma4ForCausalLM, Gemma4AssistantForCausalLM, SHARING, ORDERED),
    "keys are values": (
        Gemma4ForCausalLM,
        Gemma4AssistantForCausalLM,
        {"attention_k_eq_v": True, "num_global_key_value_heads": 1},
        {"num_hidden_layers": 4, "layer_types": KINDS * 2},
    ),
    "with images": (Gemma4ForConditionalGeneration, Gemma4AssistantForCausalLM, {}, {}),
    "unified": (Gemma4UnifiedForCausalLM, Gemma4UnifiedAssistantForCausalLM, {}, ORDERED),
}
"""By what is special of them."""


def _sharing_modes(config: Any) -> list[str | None]:
    """Which layers compute keys and values for others, as transformers 5.22 and 5.24 have it."""
    count = config.num_hidden_layers
    own = count - config.num_kv_shared_layers
    modes: list[str | None] = [None] * own + ["reuse"] * config.num_kv_shared_layers
    for kind in set(config.layer_types[:own]):
        modes[max(index for index in range(own) if config.layer_types[index] == kind)] = "store"
    return modes


@pytest.fixture(scope="module")
def sharing_layers() -> Iterator[None]:
    """transformers 5.23.0 cannot make an assistant: it refuses layers without keys and values of
    their own, and returns no keys of a target without such layers. 5.22 and 5.24 can; this puts
    what they do in its place."""
    with pytest.MonkeyPatch.context() as patch:
        if transformers.__version__ == "5.23.0":
            for config in (Gemma4TextConfig, Gemma4UnifiedTextConfig):
                patch.setattr(config, "kv_sharing_modes", property(_sharing_modes))
        yield


def made(name: str, seed: int = 0, **sizes: Any) -> tuple[Any, Any]:
    """A target and its assistant."""
    target_class, assistant_class, more, own = TARGETS[name]
    torch.manual_seed(seed)
    unified = name == "unified"
    text_class = Gemma4UnifiedTextConfig if unified else Gemma4TextConfig
    common = {
        key: value for key, value in (SIZES | sizes).items() if not unified or "_input" not in key
    }
    config = text_class(
        **common
        | {"hidden_size": WIDTH, "num_hidden_layers": 4, "layer_types": KINDS * 2}
        | {"tie_word_embeddings": False, "vocab_size_per_layer_input": common["vocab_size"]}
        | more
    )
    if name == "with images":
        config = Gemma4Config(text_config=config, vision_config=None, audio_config=None)
        config.tie_word_embeddings = False
    target = target_class(config)
    layers = {"num_hidden_layers": 2, "layer_types": list(KINDS)} | {
        key: own[key] for key in ("num_hidden_layers", "layer_types") if key in own
    }
    layers["num_kv_shared_layers"] = layers["num_hidden_layers"]
    keys = {
        key: more[key] for key in ("attention_k_eq_v", "num_global_key_value_heads") if key in more
    }
    config_class = Gemma4UnifiedAssistantConfig if unified else Gemma4AssistantConfig
    assistant = assistant_class(
        config_class(
            text_config=text_class(**common | {"hidden_size": 12} | layers | keys),
            backbone_hidden_size=WIDTH,
            **{key: value for key, value in own.items() if key not in layers},
        )
    )
    randomize(target, assistant)
    return target.eval(), assistant.eval()


@torch.no_grad()
def randomize(*models: Any) -> None:
    """Norms and layers' factors that are not 1, and clusters of tokens."""
    for model in models:
        for name, tensor in model.state_dict().items():
            if "norm" in name or name.endswith("layer_scalar"):
                tensor.add_(0.3 * torch.randn_like(tensor))
            elif name.endswith("token_ordering"):
                tensor.copy_(torch.randperm(len(tensor)))


def proposed(
    target: Any, assistant: Any, text: list[int], count: int
) -> tuple[list[int], torch.Tensor]:
    """The draft tokens and logits `[count, vocab_size]` with which `generate` continues a text,
    whose last token must be the target's choice. Its first window; a later one attends to a
    rejected draft token, too."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    kind = candidate_generator.SinglePositionMultiTokenCandidateGenerator
    propose = kind.get_candidates

    def listening(self: Any, input_ids: torch.Tensor, **given: Any) -> Any:
        candidates, logits = propose(self, input_ids, **given)
        if logits is not None:
            assert input_ids[0].tolist() == text or found
            found.append((candidates[0, input_ids.shape[1] :], logits[0]))
        return candidates, logits

    assistant.generation_config.num_assistant_tokens = count
    ids = torch.tensor([text[:-1]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "get_candidates", listening)
        target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            assistant_model=assistant,
            do_sample=False,
            max_new_tokens=2 + count,
        )
    tokens, logits = found[0]
    return tokens.tolist(), logits
