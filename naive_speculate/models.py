"""Loads model pairs: the bundled one, and any other from the Hub or a local folder."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerFast

from naive_speculate.costs import read_costs
from naive_speculate.infer.damage import damaged_file
from naive_speculate.infer.gguf.metadata import is_gguf
from naive_speculate.infer.head.checkpoint import is_head, load_head
from naive_speculate.infer.llama.model import LlamaLanguageModel
from naive_speculate.infer.llama.stored import StoredLlama, read_llama, stored_dtype
from naive_speculate.infer.llama.weights import is_supported
from naive_speculate.infer.protocols import LanguageModel
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
        target: Hub id, local folder or GGUF file; None for the bundled pair, which needs no network.
        draft: Hub id, local folder or GGUF file; with a given target, None for no draft model. One with another tokenizer is
            translated: it drafts the tokens that both know; one whose configuration says that it is a draft head is taken as
            `head`.
        head: Hub id or local folder of a draft head for the target: EAGLE-3, or one of `python -m train`.
        device: "auto" (CUDA where there is one), "cpu", "cuda", "cuda:1" … A model beside a GGUF file is computed on the CPU,
            where llama.cpp's logits are; what the word means for a GGUF file, `GgufLanguageModel` says.
        dtype: "auto" (float32 on the CPU; on CUDA what the weights are stored in), or a torch floating-point type's name. For
            GGUF files see `GgufLanguageModel`, which computes them.
        executor: As for `wrap`.
        device_map: "auto", "balanced" … spreads the target's layers over the GPUs (transformers' `device_map`, which needs
            accelerate), for targets larger than one; the draft stays on `device`.

    Returns:
        ModelPair: Target, draft and tokenizer.

    Raises:
        ValueError: Naming the argument, when a model cannot be found or loaded, the tokenizers have too little in common, the
            device is not there, or the models' states cannot be rolled back.
    """
    measured: dict[str, Any] = {}
    if head is not None and is_gguf(head):
        raise ValueError(f"head={str(head)!r}: GGUF heads are not read; a Hub id or a local folder is needed")
    if draft is not None and not is_gguf(draft) and is_head(draft):
        if head is not None:
            raise ValueError(f"draft={str(draft)!r} is a draft head, and head={str(head)!r} was given too")
        draft, head = None, draft
    if target is None:
        if draft is not None:
            raise ValueError(f"draft={str(draft)!r} was given without a target")
        target, draft = BUNDLED_PAIR / "target", BUNDLED_PAIR / "draft"
        own_head = head is None and (BUNDLED_PAIR / "head").is_dir()
        head = BUNDLED_PAIR / "head" if own_head else head
        if _device(device).type == "cpu":
            measured = read_costs(BUNDLED_PAIR / COSTS_FILE, own_head)
    if head is not None and is_gguf(target):
        raise ValueError(f"head={str(head)!r} reads hidden states, which llama.cpp does not return of target={str(target)!r}")
    where = _where(device, device_map, [is_gguf(model) for model in (target, draft) if model is not None])
    tokenizer = _load_tokenizer("target", target)
    draft_tokenizer = None if draft is None else _draft_tokenizer(tokenizer, draft)
    target_model = _load_model(str(target), "target", device, where, dtype, executor, device_map)
    draft_model = None if draft is None else _load_model(str(draft), "draft", device, where, dtype, executor)
    head_model = None
    if head is not None:
        by_onnx = getattr(target_model, "executor", None) == "onnx"
        at = getattr(target_model, "device", where)
        head_model = load_head(head, target_model, at, _dtype(dtype, where, None), "onnx" if by_onnx else "torch")
    return ModelPair(target_model, draft_model, tokenizer, draft_tokenizer=draft_tokenizer, head=head_model, **measured)


def _load_model(
    name: str, argument: str, asked: str, device: torch.device, dtype: str, executor: str, device_map: str | None = None
) -> LanguageModel:
    """A model: where it was asked for if llama.cpp computes it, else on the device of torch's."""
    if is_gguf(name):
        return _load_gguf(argument, name, asked, dtype, executor, device_map)
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
    try:
        cast(torch.nn.Module, model).to(device)
    except torch.OutOfMemoryError as error:
        raise ValueError(f"{argument}={name!r} does not fit on {device}: {_one_line(error)}") from None
    return wrap(model, executor)


def _refuse_if_incomplete(report: Mapping[str, Any]) -> None:
    """Raise a `ValueError` where transformers had to make up weights that the files lack, or have in other shapes."""
    missing, misshapen = sorted(report["missing_keys"]), sorted(report["mismatched_keys"])
    if missing:
        raise ValueError(f"its safetensors files lack {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else ""))
    if misshapen:
        name, stored, wanted = misshapen[0]
        raise ValueError(f"{name} is {list(stored)}, its configuration says {list(wanted)}")


def _read_lean(argument: str, name: str, device: torch.device, dtype: str) -> StoredLlama | None:
    if (stored := stored_dtype(Path(name))) is None:
        return None
    try:
        return read_llama(Path(name), device, _dtype(dtype, device, stored))
    except torch.OutOfMemoryError as error:
        raise ValueError(f"{argument}={name!r} does not fit on {device}: {_one_line(error)}") from None


def _load_gguf(argument: str, name: str, device: str, dtype: str, executor: str, device_map: str | None) -> LanguageModel:
    from naive_speculate.infer.gguf.model import GgufLanguageModel  # llama-cpp-python is optional

    for option, given, usual in (("executor", executor, "auto"), ("device_map", device_map, None)):
        if given != usual:
            raise ValueError(f"{option}={given!r} is not for GGUF files, which llama.cpp computes, as {argument}={name!r}")
    try:
        return GgufLanguageModel(name, device, dtype)
    except (OSError, ValueError, MemoryError) as error:
        raise _load_error(argument, name, error) from None


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
        raise ValueError(f"executor must be one of {', '.join(EXECUTORS)}, got {executor!r}")
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


def _load_tokenizer(argument: str, source: str | Path) -> Any:
    name = str(source)
    if not is_gguf(name) and Path(name).exists() and not (Path(name) / "config.json").is_file():
        raise ValueError(f"{argument}={name!r} is not a model: the folder has no config.json")
    try:
        if is_gguf(name):
            from naive_speculate.infer.gguf.tokenizer import GgufTokenizer  # llama-cpp-python is optional

            return GgufTokenizer(name)
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


def _draft_tokenizer(tokenizer: Any, draft: str | Path) -> Any:
    """The draft's tokenizer where it has other tokens than the target's; else None."""
    other = _load_tokenizer("draft", draft)
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


def _where(device: str, device_map: str | None, of_gguf: list[bool]) -> torch.device:
    """Where torch computes: what llama.cpp computes comes to the CPU, so a model beside a GGUF file must be there, too."""
    if not any(of_gguf):
        return _device(device)
    if not all(of_gguf):
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
