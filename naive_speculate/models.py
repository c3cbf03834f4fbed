"""Loads model pairs: the bundled one, and any other from the Hub or a local folder."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerFast

from naive_speculate.costs import read_costs
from naive_speculate.infer.damage import damaged_file
from naive_speculate.infer.gguf.library import is_installed as has_llama_cpp
from naive_speculate.infer.gguf.metadata import is_gguf
from naive_speculate.infer.head.checkpoint import load_head
from naive_speculate.infer.head.files import is_head
from naive_speculate.infer.llama.model import LlamaLanguageModel
from naive_speculate.infer.llama.stored import StoredLlama, read_llama, stored_dtype
from naive_speculate.infer.llama.weights import is_supported
from naive_speculate.infer.memory import free_memory
from naive_speculate.infer.protocols import LanguageModel
from naive_speculate.known import DRAFTERS, KNOWN
from naive_speculate.pair import BUNDLED_PAIR, ModelPair
from naive_speculate.translation import translation_between

if TYPE_CHECKING:
    from naive_speculate.infer.transformers_model import TransformersLanguageModel

__all__ = ["BUNDLED_PAIR", "EXECUTORS", "ModelPair", "load_pair", "wrap"]

COSTS_FILE = "costs.json"
_FAILURES = (
    OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RuntimeError, ImportError, StrictDataclassError,
    SafetensorError,
)  # fmt: skip
"""What transformers raises where a folder is not as it expects."""
EXECUTORS = ("auto", "onnx", "torch", "transformers")
_UNKNOWN_EXECUTOR = f"executor must be one of {', '.join(EXECUTORS)}, got {{!r:.80}}"
_log = logging.getLogger(__name__)


def load_pair(
    target: str | Path | None = None,
    draft: str | Path | None = None,
    head: str | Path | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    executor: str = "auto",
    device_map: str | None = None,
) -> ModelPair:
    """Load a pair of models.

    Args:
        target: Hub id, local folder or GGUF file; None for the bundled pair, which needs no network; or the name of a known
            pair (`KNOWN`), which comes with drafters of ours.
        draft: Hub id, local folder or GGUF file; with a given target, None for no draft model. One with another tokenizer is
            translated: it drafts the tokens that both know; one whose configuration says that it is a draft head is taken as
            `head`.
        head: Hub id or local folder of a draft head for the target: EAGLE-3, or one of `python -m train`.
        device: "auto" (CUDA where there is one), "cpu", "cuda", "cuda:1" … A model beside a file that llama.cpp computes is
            computed on the CPU, where llama.cpp's logits are; what the word means for such a file, `GgufLanguageModel` says.
        dtype: "auto" (float32 on the CPU; on CUDA what the weights are stored in), or a torch floating-point type's name. For
            what llama.cpp computes see `GgufLanguageModel`.
        executor: As for `wrap`. "auto" computes GGUF files with llama.cpp where it is installed and no head reads their hidden
            states; else, and with any other, they are dequantised and computed as all other models.
        device_map: "auto", "balanced" … spreads the target's layers over the GPUs (transformers' `device_map`, which needs
            accelerate), for targets larger than one; the draft stays on `device`.

    Returns:
        ModelPair: Target, draft and tokenizer.

    Raises:
        ValueError: Naming the argument, when a model cannot be found or loaded, the tokenizers have too little in common, the
            device is not there, or the models' states cannot be rolled back.
    """
    if executor not in EXECUTORS:
        raise ValueError(_UNKNOWN_EXECUTOR.format(executor))
    if head is not None and is_gguf(head):
        raise ValueError(f"head={str(head)!r}: GGUF heads are not read; a Hub id or a local folder is needed")
    if draft is not None and not is_gguf(draft) and is_head(draft):
        if head is not None:
            raise ValueError(f"draft={str(draft)!r} is a draft head, and head={str(head)!r} was given too")
        draft, head = None, draft
    chosen = _chosen(target, draft, head, device)
    target, draft, head = chosen.target, chosen.draft, chosen.head
    by_llama_cpp = executor == "auto" and head is None and chosen.name is None and has_llama_cpp()
    where = _where(device, device_map, [by_llama_cpp and is_gguf(model) for model in (target, draft) if model is not None])
    how = _How(device, where, dtype, executor, by_llama_cpp)
    tokenizer = _load_tokenizer("target", target, by_llama_cpp)
    draft_tokenizer = None if draft is None else _draft_tokenizer(tokenizer, draft, by_llama_cpp)
    target_model = _load_model(str(target), "target", how, device_map)
    draft_model = None if draft is None else _load_model(str(draft), "draft", how)
    head_model = None
    if head is not None:
        by_onnx = getattr(target_model, "executor", None) == "onnx"
        at = getattr(target_model, "device", where)
        head_model = load_head(head, target_model, at, _dtype(dtype, where, None), "onnx" if by_onnx else "torch")
    free_memory()
    weights = chosen.weights
    if is_gguf(target) and not by_llama_cpp:
        weights = _weights_in_words(Path(target), weights)
    if chosen.name is not None:
        cast(Any, target_model).name = chosen.name
    return ModelPair(
        target_model,
        draft_model,
        tokenizer,
        draft_tokenizer=draft_tokenizer,
        head=head_model,
        weights=weights,
        **chosen.measured,
    )


@dataclass
class _Chosen:
    """Where a pair's models are, and what is known of them: measured costs, the target's own name, which weights it has."""

    target: str | Path
    draft: str | Path | None = None
    head: str | Path | None = None
    measured: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    weights: str | None = None


def _chosen(target: str | Path | None, draft: str | Path | None, head: str | Path | None, device: str) -> _Chosen:
    if target is None:
        if draft is not None:
            raise ValueError(f"draft={str(draft)!r} was given without a target")
        own_head = BUNDLED_PAIR / "head"
        chosen = _Chosen(BUNDLED_PAIR / "target", BUNDLED_PAIR / "draft", head or (own_head if own_head.is_dir() else None))
        if _device(device).type == "cpu":
            chosen.measured = read_costs(BUNDLED_PAIR / COSTS_FILE, chosen.head == own_head)
        return chosen
    known = KNOWN.get(str(target))
    if known is None:
        return _Chosen(target, draft, head)
    try:
        found = known.find()
    except ValueError as error:
        raise ValueError(f"target={str(target)!r} {error}") from None
    ours = known.drafter("head")
    chosen = _Chosen(found.path, draft or known.drafter("draft"), head or ours, name=known.target, weights=found.weights)
    if not is_gguf(found.path):
        chosen.weights = found.weights.format(str(stored_dtype(found.path)).removeprefix("torch."))
    if draft is None and (head is None or head == ours):
        chosen.measured = {"fastest_drafter": "suffix" if chosen.head is None else "head"}
        if _device(device).type == "cpu":
            chosen.measured |= read_costs(DRAFTERS / known.drafters / COSTS_FILE, chosen.head is not None)
    return chosen


def _weights_in_words(path: Path, words: str | None) -> str:
    from naive_speculate.infer.gguf.weights import weights_kind

    return (words or "{} weights, dequantised").format(weights_kind(path))


@dataclass(frozen=True)
class _How:
    """How models are computed: on the device that was asked for where llama.cpp computes them, else on torch's."""

    asked: str
    device: torch.device
    dtype: str
    executor: str
    by_llama_cpp: bool


def _load_model(name: str, argument: str, how: _How, device_map: str | None = None) -> LanguageModel:
    if is_gguf(name):
        return _load_gguf(argument, name, how, device_map)
    device, dtype, executor = how.device, how.dtype, how.executor
    if device_map is None and executor in ("auto", "onnx", "torch") and (lean := _read_lean(argument, name, device, dtype)):
        return LlamaLanguageModel.from_stored(lean, cast(Any, executor))
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        found = _dtype(dtype, device, getattr(config, "dtype", None))
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=found,
            trust_remote_code=False,
            use_safetensors=True,
            device_map=device_map,
            ignore_mismatched_sizes=True,  # they are refused here, by name
            output_loading_info=True,
        )
        model, report = loaded
        _refuse_if_incomplete(report)
    except _FAILURES as error:
        raise _load_error(argument, name, error) from None
    if device_map is not None:  # its layers are where they belong, and only transformers' own forward walks over them
        return wrap(model, "transformers" if executor == "auto" else executor)
    return wrap(_moved(model, argument, name, device), executor)


def _moved(model: Any, argument: str, name: str, device: torch.device) -> Any:
    try:
        return model.to(device)
    except torch.OutOfMemoryError as error:
        raise ValueError(f"{argument}={name!r} does not fit on {device}: {_one_line(error)}") from None


def _refuse_if_incomplete(report: Mapping[str, Any]) -> None:
    """Raise a `ValueError` where transformers had to make up weights that the files lack, or have in other shapes."""
    missing, misshapen = sorted(report["missing_keys"]), sorted(report["mismatched_keys"])
    if missing:
        raise ValueError(f"its safetensors files lack {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else ""))
    if misshapen:
        name, stored, wanted = misshapen[0]
        raise ValueError(f"{name} is {list(stored)}, its configuration requires {list(wanted)}")


def _read_lean(argument: str, name: str, device: torch.device, dtype: str) -> StoredLlama | None:
    if (stored := stored_dtype(Path(name))) is None:
        return None
    try:
        return read_llama(Path(name), device, _dtype(dtype, device, stored))
    except torch.OutOfMemoryError as error:
        raise ValueError(f"{argument}={name!r} does not fit on {device}: {_one_line(error)}") from None


def _load_gguf(argument: str, name: str, how: _How, device_map: str | None) -> LanguageModel:
    if device_map is not None:
        raise ValueError(f"device_map={device_map!r} is not for GGUF files, as {argument}={name!r}")
    try:
        if how.by_llama_cpp:
            from naive_speculate.infer.gguf.model import GgufLanguageModel  # llama-cpp-python is optional

            return GgufLanguageModel(name, how.asked, how.dtype)
        from naive_speculate.infer.gguf.weights import read_gguf_llama, unread_by_transformers

        path, dtype = Path(name), _dtype(how.dtype, how.device, None)
        if how.executor != "transformers" and (stored := read_gguf_llama(path, how.device, dtype)) is not None:
            return LlamaLanguageModel.from_stored(stored, cast(Any, how.executor))
        if (reason := unread_by_transformers(path)) is not None:
            raise ValueError(f"{reason}, which transformers does not read: pip install 'naive-speculate[gguf]'")
        return wrap(_moved(_of_gguf(path, dtype), argument, name, how.device), "transformers")
    except (*_FAILURES, MemoryError) as error:
        raise _load_error(argument, name, error) from None


def _of_gguf(path: Path, dtype: torch.dtype) -> Any:
    """A file's model as transformers reads it.

    Raises:
        ValueError: If there are weights that it could not fill.
    """
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=dtype, output_loading_info=True
    )
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"transformers finds no {missing[0]} in it: pip install 'naive-speculate[gguf]'")
    model.config._name_or_path = model.name_or_path = str(path)
    return model


def wrap(model: Any, executor: str = "auto") -> LanguageModel:
    """A loaded transformers model as a `LanguageModel`.

    Args:
        model: A transformers causal language model on its device.
        executor: "auto" takes the fast implementation for the Llama family and transformers' own for everything else;
            "onnx" and "torch" ask for one of the fast ones, "transformers" for the plain one.

    Raises:
        ValueError: If the executor is unknown or cannot run the model, or the model's state cannot be rolled back or its
            logits through a cache are not those of its own forward.
    """
    if executor not in EXECUTORS:
        raise ValueError(_UNKNOWN_EXECUTOR.format(executor))
    if executor == "transformers":
        return _probed(model)
    obstacle = is_supported(model.config)
    if executor == "auto" and obstacle is not None:
        _log.info("%s runs in transformers: %s", model.name_or_path or type(model).__name__, obstacle)
        return _probed(model)
    return LlamaLanguageModel.from_transformers(model, cast(Any, executor))


def _probed(model: Any) -> "TransformersLanguageModel":
    from naive_speculate.infer.transformers_model import TransformersLanguageModel

    language_model = TransformersLanguageModel(model)
    if model.device.type != "cuda" or torch.cuda.is_initialized():  # a server that forks to decode has no GPU before
        language_model.probe()
    return language_model


def _load_tokenizer(argument: str, source: str | Path, by_llama_cpp: bool) -> Any:
    name = str(source)
    if not is_gguf(name) and Path(name).exists() and not (Path(name) / "config.json").is_file():
        raise ValueError(f"{argument}={name!r} is not a model: the folder has no config.json")
    try:
        if is_gguf(name):
            from naive_speculate.infer.gguf.tokenizer import GgufTokenizer, plain_tokenizer

            return GgufTokenizer(name) if by_llama_cpp else plain_tokenizer(name)
        if _has_plain_tokenizer(Path(name)):
            return PreTrainedTokenizerFast.from_pretrained(name)
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # of tokenizers', which have no class of their own
        raise _load_error(argument, name, error) from None
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ValueError(f"{argument}={name!r} has a tokenizer without a fast backend, which is needed here")
    return tokenizer


def _has_plain_tokenizer(folder: Path) -> bool:
    """Whether a folder's tokenizer is its `tokenizer.json` and nothing else; then its class is known without the model's."""
    try:
        told = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    plain = isinstance(told, dict) and told.get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast")
    return plain and "auto_map" not in told and (folder / "tokenizer.json").is_file()


def _draft_tokenizer(tokenizer: Any, draft: str | Path, by_llama_cpp: bool) -> Any:
    """The draft's tokenizer where it has other tokens than the target's; else None."""
    other = _load_tokenizer("draft", draft, by_llama_cpp)
    try:
        return None if translation_between(tokenizer, other) is None else other
    except ValueError as error:
        raise ValueError(f"draft={str(draft)!r} {error}") from None


def _load_error(argument: str, name: str, error: Exception) -> ValueError:
    if name.startswith((".", "/", "~")) and not Path(name).exists():
        return ValueError(f"{argument}={name!r}: there is no such {'file' if is_gguf(name) else 'folder'}")
    damaged = None if is_gguf(name) else damaged_file(name)
    return ValueError(f"{argument}={name!r} cannot be loaded: {damaged or _one_line(error)}")


def _one_line(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return " ".join(str(error).split())[:300]


def _where(device: str, device_map: str | None, by_llama_cpp: list[bool]) -> torch.device:
    """Where torch computes: what llama.cpp computes comes to the CPU, so a model beside a GGUF file must be there, too."""
    if not any(by_llama_cpp):
        return _device(device)
    if not all(by_llama_cpp):
        if device not in ("auto", "cpu"):
            raise ValueError(f"device={device!r}: beside a GGUF file the other model is computed on the CPU")
        if device_map not in (None, "cpu"):
            raise ValueError(f"device_map={device_map!r}: beside a GGUF file the other model is computed on the CPU")
    return torch.device("cpu")


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r} is not there: {_one_line(error)}") from None
    return found


def _dtype(dtype: str, device: torch.device, stored: Any) -> torch.dtype:
    if dtype == "auto":
        if device.type == "cpu":
            return torch.float32
        return stored if isinstance(stored, torch.dtype) else torch.bfloat16
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(f"dtype must be 'auto' or a floating-point type such as 'float32' or 'bfloat16', got {dtype!r}")
    return found
