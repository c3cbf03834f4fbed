"""What transformers' `generate` can draft with, under this library's names, and why it cannot.

transformers 5.23: a draft model, prompt lookup, the model's own MTP layers (`use_mtp`) or first
layers (`assistant_early_exit`), a DFlash drafter (`speculation_type="dflash"`), and Gemma 4's
assistants. Mistakes that it would answer with any kind of error, or with none, are found first.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from transformers import SynthIDTextWatermarkingConfig

from naive_speculate.speculate.draft import DRAFTERS

_DRAFTERS = {
    "PromptLookupCandidateGenerator": "prompt_lookup",
    "MTPCandidateGenerator": "mtp",
    "DFlashTokenCandidateGenerator": "block",
    "SinglePositionMultiTokenCandidateGenerator": "assistant",
}
"""Drafters by transformers' candidate generator; the others' is "model"."""
_OF_DFLASH = ("block_size", "mask_token_id", "target_layer_ids")


def drafter_of(generator: Any) -> str:
    return _DRAFTERS.get(type(generator).__name__, "model")


def window_of(generator: Any) -> int | None:
    """None if it has no limit of its own."""
    if (size := getattr(generator, "block_size", None)) is not None:
        return int(size) - 1  # the first position of a block is the last token
    for name in ("num_assistant_tokens", "num_output_tokens", "num_mtp_layers"):
        if window := getattr(generator, name, None):
            return int(window)
    return None


def models_of(model: Any, assistant: Any, generator: Any) -> dict[str, str]:
    """By role, as `ModelPair.names`."""
    names, role = {"target": _name(model)}, DRAFTERS[drafter_of(generator)].role
    if role in names:  # it copies
        return names
    exit_after = getattr(generator, "assistant_early_exit", None)
    own = names["target"] if assistant is None or exit_after else _name(assistant)
    layers = f", first {exit_after} of {_num_layers(model)} layers" if exit_after else ""
    return names | {role: own + layers}


def check_options(model: Any, assistant: Any, options: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for options that are not supported, or that transformers cannot run with
    these models."""
    if (weight := _option(model, options, "assistant_ensemble_weight")) is not None:
        raise ValueError(f"assistant_ensemble_weight={weight} is lossy and not supported")
    if options.get("assistant_tokenizer") is not None and _option(model, options, "do_sample"):
        raise ValueError(
            "assistant_tokenizer with do_sample=True is not supported: transformers judges such"
            " drafts by the probabilities of other tokens, and changes assistant_model for good"
        )
    if _option(model, options, "use_mtp"):
        _check_mtp(model)
    if (layers := _option(model, options, "assistant_early_exit")) is not None:
        _check_early_exit(model, layers)
    kind = _option(model, options, "speculation_type")
    if kind not in (None, "dflash"):
        raise ValueError(f"speculation_type must be 'dflash', got {kind!r:.80}")
    if kind == "dflash" or _is_dflash(assistant):
        _check_dflash(model, assistant, kind)
    elif (width := getattr(_config(assistant), "backbone_hidden_size", None)) is not None:
        _check_assistant(model, assistant, width)
    elif layers is not None or assistant is not None:
        _check_stops(model, options, layers)


def counts_rejected(config: Any) -> bool:
    """Whether transformers' logits processors count rejected draft tokens as text.

    Those of guidance and of SynthID's watermark keep state, which nothing takes back (5.24), so
    the text is not the one without drafts: findings/transformers-guidance-scale-with-drafts-… and
    findings/transformers-synthid-watermark-….
    """
    guided = config.guidance_scale not in (None, 1)
    return guided or isinstance(config.watermarking_config, SynthIDTextWatermarkingConfig)


def passes_rotary_limit(model: Any, start: int, end: int) -> bool:
    """Whether a text that grew from `start` to `end` tokens passed the length at which LongRoPE's
    frequencies change.

    There transformers (5.24) computes a whole plain text again, and with drafts goes on with cached
    keys, so the text is another: findings/transformers-longrope-with-drafts-….
    """
    rope = getattr(_text(model), "rope_parameters", None) or {}
    limit = rope.get("original_max_position_embeddings")
    return rope.get("rope_type") == "longrope" and limit is not None and start <= limit < end


def _option(model: Any, options: Mapping[str, Any], name: str) -> Any:
    """Given, or of the given generation configuration, or of the model's."""
    configs = (options.get("generation_config"), getattr(model, "generation_config", None))
    values = (options.get(name), *(getattr(config, name, None) for config in configs))
    return next((value for value in values if value is not None), None)


def _check_mtp(model: Any) -> None:
    if not getattr(_text(model), "num_mtp_layers", None):
        raise ValueError(
            f"use_mtp=True: transformers {transformers.__version__} has no MTP layers for"
            f" {type(model).__name__}; drafter='mtp' of this library may"
        )
    if not (name := getattr(model, "name_or_path", "")):
        raise ValueError(
            "use_mtp=True: transformers reads MTP layers from the checkpoint that a model was"
            " loaded from, and this one was made in memory"
        )
    if name.startswith((".", "/", "~")) and not Path(name).exists():
        raise ValueError(
            f"use_mtp=True: transformers reads MTP layers from {name!r}, which does not exist"
        )


def _check_stops(model: Any, options: Mapping[str, Any], layers: Any) -> None:
    """A model drafts, unless it is given together with another way, which goes before it."""
    others = (_option(model, options, name) for name in ("prompt_lookup_num_tokens", "use_mtp"))
    if _option(model, options, "stop_strings") and (layers is not None or not any(others)):
        raise ValueError(
            f"stop_strings: transformers {transformers.__version__} does not take them where a"
            " model drafts by generate"
        )


def _check_early_exit(model: Any, layers: Any) -> None:
    depth = _num_layers(model)
    if type(layers) is not int or not 1 <= layers < depth:
        raise ValueError(
            f"assistant_early_exit must be a number of layers from 1 to {depth - 1}, got"
            f" {layers!r:.80}"
        )


def _check_dflash(model: Any, assistant: Any, kind: str | None) -> None:
    if assistant is None or not _is_dflash(assistant):
        raise ValueError(
            "speculation_type='dflash' needs an assistant_model that is a DFlash drafter, with"
            f" {', '.join(_OF_DFLASH)}; {type(assistant).__name__} is none"
        )
    if kind is None:
        raise ValueError("assistant_model is a DFlash drafter: give speculation_type='dflash'")
    config, depth = _config(assistant), _num_layers(model)
    if config.hidden_size != _text(model).hidden_size:
        raise ValueError(
            f"assistant_model has hidden_size {config.hidden_size}, the model's is"
            f" {_text(model).hidden_size}"
        )
    if wrong := [layer for layer in config.target_layer_ids if not 0 <= layer < depth]:
        raise ValueError(
            f"assistant_model reads layer {wrong[0]} of its target, this one has {depth}"
        )
    if not 0 <= config.mask_token_id < model.get_input_embeddings().num_embeddings:
        raise ValueError(
            f"assistant_model has mask_token_id {config.mask_token_id}, which the model does not"
            " have"
        )


def _check_assistant(model: Any, assistant: Any, width: int) -> None:
    if not type(model).__name__.startswith(("Gemma4", "Gemma3n")):
        raise ValueError(
            f"assistant_model is a {type(assistant).__name__}, for a target of Gemma 4 or 3n, not"
            f" {type(model).__name__}"
        )
    if width != _text(model).hidden_size:
        raise ValueError(
            f"assistant_model has backbone_hidden_size {width}, the model's hidden_size is"
            f" {_text(model).hidden_size}"
        )


def _is_dflash(assistant: Any) -> bool:
    return all(hasattr(_config(assistant), name) for name in _OF_DFLASH)


def _config(model: Any) -> Any:
    return getattr(model, "config", None)


def _text(model: Any) -> Any:
    return model.config.get_text_config(decoder=True)


def _num_layers(model: Any) -> int:
    return int(_text(model).num_hidden_layers)


def _name(model: Any) -> str:
    return getattr(model, "name_or_path", "") or type(model).__name__
