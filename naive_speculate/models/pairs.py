"""Loads model pairs: the bundled one, known ones by name, and any other from the Hub, local
folders or GGUF files."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedTokenizerFast

from naive_speculate.infer.costs import read_costs
from naive_speculate.models.files import is_gguf, load_error
from naive_speculate.models.heads.checkpoint import load_head
from naive_speculate.models.heads.files import is_head
from naive_speculate.models.known import DRAFTERS, KNOWN
from naive_speculate.models.llama.model import choose_executor
from naive_speculate.models.llama.stored import stored_dtype
from naive_speculate.models.load import (
    EXECUTORS,
    LoadOptions,
    check_executor,
    check_weights,
    device_of,
    dtype_of,
    load_model,
    wrap,
)
from naive_speculate.models.memory import free_memory
from naive_speculate.models.translation.tokens import Translation, translation_between
from naive_speculate.pair import BUNDLED_PAIR, ModelPair

__all__ = ["BUNDLED_PAIR", "EXECUTORS", "ModelPair", "load_pair", "wrap"]

COSTS_FILE = "costs.json"


def load_pair(
    target: str | Path | None = None,
    draft: str | Path | None = None,
    head: str | Path | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    executor: str = "auto",
    device_map: str | None = None,
    weights: str = "float32",
    progress: Callable[[float], object] | None = None,
) -> ModelPair:
    """Load a pair of models.

    Args:
        target: Hub id, local folder, GGUF file, or the name of a known pair (`KNOWN`), which has
            drafters of ours. None for the bundled pair, which needs no network.
        draft: Hub id, local folder or GGUF file; with a given target, None for no draft model. A
            draft with another tokenizer is translated: it drafts the tokens that both have. A
            draft head given here is taken as `head`.
        head: Hub id or local folder of a draft head, block drafter or assistant for the target:
            EAGLE-3, DFlash, Gemma 4's, or one of `python -m train`.
        device: "auto" (CUDA where there is one), "cpu", "cuda", "cuda:1" …
        dtype: "auto" (float32 on the CPU; on CUDA the dtype of the stored weights), or a torch
            floating-point type's name.
        executor: As for `wrap`. GGUF files are dequantised and computed like any other model.
        device_map: "auto", "balanced" … spreads the target's layers over several GPUs
            (transformers' `device_map`, which needs accelerate); the draft stays on `device`.
        weights: "float32" leaves the weights in `dtype`. "int8" rounds every matrix of target
            and draft to 8 bits: about twice as fast on a CPU, and the text with drafts is still
            exactly the text without, since sums of whole numbers are exact. It needs ONNX
            Runtime and a model of the Llama family; GGUF files are read by our executor.
        progress: Called with the share of a model's layers that were read, during rounding.

    Raises:
        ValueError: Naming the argument, if a model cannot be found or loaded, the tokenizers
            share too few tokens, the device is not available, or the models' states cannot be
            rolled back.
    """
    options = LoadOptions(device_of(device), dtype, executor, weights, progress)
    _check(options, device_map)
    sources = _sources(target, *_draft_or_head(draft, head), device, weights)
    tokenizer = _load_tokenizer("target", sources.target)
    translation = None if sources.draft is None else _translation(tokenizer, sources.draft)
    target_model = load_model(str(sources.target), "target", options, device_map)
    pair = ModelPair(
        target_model,
        None if sources.draft is None else load_model(str(sources.draft), "draft", options),
        tokenizer,
        translation=translation,
        head=None if sources.head is None else _load_head(sources.head, target_model, options),
        weights=_describe_weights(sources, options),
        **sources.measured,
    )
    if sources.name is not None:
        cast(Any, target_model).name = sources.name
    free_memory()
    return pair


def _check(options: LoadOptions, device_map: str | None) -> None:
    """Raise a `ValueError` for options that are unknown or contradict one another."""
    check_executor(options.executor)
    device, weights = options.device, options.weights
    dtype = dtype_of(options.dtype, device, None)  # a `ValueError` for an unknown name
    if device_map is not None and weights != "float32":
        raise ValueError(f"weights={weights!r} is for one CPU, got device_map={device_map!r}")
    check_weights(weights, options.executor, device, options.dtype)
    if options.executor == "onnx":
        choose_executor("onnx", device, dtype)  # a `ValueError` where it cannot run


@dataclass
class _Sources:
    """Where a pair's models are, their measured costs, the target's own name, and a description
    of its weights."""

    target: str | Path
    draft: str | Path | None = None
    head: str | Path | None = None
    measured: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    weights: str | None = None


def _draft_or_head(
    draft: str | Path | None, head: str | Path | None
) -> tuple[str | Path | None, str | Path | None]:
    """Draft and head; a draft that is a head becomes the head."""
    if head is not None and is_gguf(head):
        raise ValueError(
            f"head={str(head)!r}: GGUF heads are not supported; give a Hub id or a local folder"
        )
    if draft is None or is_gguf(draft) or not is_head(draft):
        return draft, head
    if head is not None:
        raise ValueError(
            f"draft={str(draft)!r} is a draft head, and head={str(head)!r} was given too"
        )
    return None, draft


def _sources(
    target: str | Path | None,
    draft: str | Path | None,
    head: str | Path | None,
    device: str,
    weights: str,
) -> _Sources:
    """The models to load: those given, and for the bundled and known pairs our drafters with
    their measured costs."""
    if target is None:
        if draft is not None:
            raise ValueError(f"draft={str(draft)!r} was given without a target")
        folder, sources = BUNDLED_PAIR, _Sources(BUNDLED_PAIR / "target")
    elif (known := KNOWN.get(str(target))) is None:
        return _Sources(target, draft, head)
    else:
        try:
            path, words = known.find()
        except ValueError as error:
            raise ValueError(f"target={str(target)!r} {error}") from None
        folder, sources = (
            DRAFTERS / known.drafters,
            _Sources(path, name=known.target, weights=words),
        )
    ours = {
        kind: folder / kind
        for kind in ("draft", "head")
        if (folder / kind / "config.json").is_file()
    }
    sources.draft, sources.head = draft or ours.get("draft"), head or ours.get("head")
    has_our_head = sources.head is not None and sources.head == ours.get("head")
    if target is None or (draft is None and head in (None, ours.get("head"))):
        if target is not None:
            sources.measured = {"fastest_drafter": "suffix+head" if has_our_head else "suffix"}
        if device_of(device).type == "cpu":
            sources.measured |= read_costs(folder / COSTS_FILE, has_our_head, weights)
    return sources


def _describe_weights(sources: _Sources, options: LoadOptions) -> str | None:
    """The target's weights in words, such as "Q4_1 weights, dequantised"; None where its name is
    enough."""
    words = _describe_stored(sources)
    if options.rounding is None:
        return words
    if words is None and (stored := stored_dtype(Path(sources.target))) is not None:
        words = f"{str(stored).removeprefix('torch.')} weights"
    rounded = "rounded to 8 bits"
    return rounded if words is None else f"{words}, {rounded}"


def _describe_stored(sources: _Sources) -> str | None:
    path, words = Path(sources.target), sources.weights
    if is_gguf(path):
        from naive_speculate.models.gguf.weights import weights_kind

        return (words or "{} weights, dequantised").format(weights_kind(path))
    return words and words.format(str(stored_dtype(path)).removeprefix("torch."))


def _load_head(source: str | Path, target: Any, options: LoadOptions) -> Any:
    executor = "onnx" if getattr(target, "executor", None) == "onnx" else "torch"
    device = getattr(target, "device", options.device)
    dtype = dtype_of(options.dtype, options.device, None)
    # always in 8 bits: drafts change no text, and reading weights takes most of their time
    return load_head(source, target, device, dtype, executor, in_8_bits=True)


_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


def _load_tokenizer(argument: str, source: str | Path) -> Any:
    name = str(source)
    if not is_gguf(name) and Path(name).exists() and not (Path(name) / "config.json").is_file():
        raise ValueError(f"{argument}={name!r} is not a model: the folder has no config.json")
    try:
        if is_gguf(name):
            from naive_speculate.models.gguf.tokenizer import gguf_tokenizer

            return gguf_tokenizer(name)
        if _has_plain_tokenizer(Path(name)):
            tokenizer = PreTrainedTokenizerFast.from_pretrained(name)
        else:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        tokenizer("")  # it reads settings that loading does not
    except Exception as error:  # tokenizers raises plain Exception
        if Path(name).is_dir() and not any((Path(name) / file).exists() for file in _VOCABULARIES):
            error = ValueError(f"it has no tokenizer.json: {error}")
        raise load_error(argument, name, error, "config.json or tokenizer_config.json") from None
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ValueError(
            f"{argument}={name!r} has a tokenizer without a fast backend, which is required"
        )
    if set(tokenizer.get_vocab().values()) <= set(
        tokenizer.all_special_ids
    ):  # what transformers makes up without files
        raise ValueError(
            f"{argument}={name!r} cannot be loaded: it has no tokenizer.json, or one without tokens"
        )
    return tokenizer


def _has_plain_tokenizer(folder: Path) -> bool:
    """Whether `tokenizer.json` is the whole tokenizer of a folder; then the slow import of its
    class is not needed."""
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    plain = isinstance(config, dict) and config.get("tokenizer_class") in (
        "TokenizersBackend",
        "PreTrainedTokenizerFast",
    )
    return plain and "auto_map" not in config and (folder / "tokenizer.json").is_file()


def _translation(tokenizer: Any, draft: str | Path) -> Translation | None:
    other = _load_tokenizer("draft", draft)
    try:
        return translation_between(tokenizer, other)
    except ValueError as error:
        raise ValueError(f"draft={str(draft)!r} {error}") from None
