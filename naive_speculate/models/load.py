"""Loads one language model, from the Hub, a local folder or a GGUF file, with the executor that
suits it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from naive_speculate.infer.protocols import LanguageModel
from naive_speculate.models.files import (
    check_complete,
    is_gguf,
    is_path,
    load_error,
    tensor_files,
)
from naive_speculate.models.gguf.metadata import BY_LLAMA_CPP, read_metadata
from naive_speculate.models.llama.kernels import row_difference
from naive_speculate.models.llama.model import LlamaLanguageModel, choose_executor
from naive_speculate.models.llama.rounded import Rounding
from naive_speculate.models.llama.stored import StoredLlama, read_llama, stored_dtype
from naive_speculate.models.llama.weights import is_supported
from naive_speculate.text import one_line

if TYPE_CHECKING:
    from naive_speculate.infer.transformers_model import TransformersLanguageModel

EXECUTORS = ("auto", "onnx", "torch", "transformers")
WEIGHTS = ("float32", "int8")
"""Forms of weights."""
_HEAD_SIZES = ("llama", "qwen3", "qwen3moe")  # llama.cpp's names of families
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadOptions:
    """Where and how models are computed."""

    device: torch.device
    dtype: str  # as for `load_pair`
    executor: str  # one of `EXECUTORS`
    weights: str = "float32"  # one of `WEIGHTS`
    progress: Callable[[float], object] | None = None  # see `Rounding`

    @property
    def rounding(self) -> Rounding | None:
        """Whether weights are rounded."""
        return Rounding(self.progress) if self.weights == "int8" else None


def check_executor(executor: str) -> None:
    """Raise a `ValueError` for an unknown executor."""
    if executor not in EXECUTORS:
        raise ValueError(f"executor must be one of {', '.join(EXECUTORS)}, got {executor!r:.80}")


def check_weights(weights: str, executor: str, device: torch.device, dtype: str) -> None:
    """Raise a `ValueError` for unknown weights, or where they cannot be computed: also where
    their bits depend on a token's company, so that texts with drafts could be others."""
    if weights not in WEIGHTS:
        raise ValueError(f"weights must be one of {', '.join(WEIGHTS)}, got {weights!r:.80}")
    if weights == "float32":
        return
    if executor not in ("auto", "onnx"):
        raise ValueError(f"weights={weights!r} needs the executor onnx, got executor={executor!r}")
    try:
        choose_executor("onnx", device, dtype_of(dtype, device, None))
        if row_difference(rounding=True):
            raise ValueError(
                "with this processor's kernels a token's logits depend on the number of tokens in"
                " a pass, so texts with drafts could differ from texts without"
            )
    except ValueError as error:
        raise ValueError(f"weights={weights!r}: {error}") from None


def load_model(
    name: str, argument: str, options: LoadOptions, device_map: str | None = None
) -> LanguageModel:
    """Load a model from the Hub, a local folder or a GGUF file. Raises `ValueError`, in one
    line, naming the argument and the fault."""
    if is_gguf(name):
        return _load_gguf(argument, name, options, device_map)
    try:
        return _load_folder(name, options, device_map)
    except (
        Exception
    ) as error:  # transformers, tokenizers and ONNX Runtime raise any kind for odd values
        raise load_error(argument, name, error) from None


def _load_folder(name: str, options: LoadOptions, device_map: str | None) -> LanguageModel:
    device, dtype, executor = options.device, options.dtype, options.executor
    if (
        device_map is None
        and executor != "transformers"
        and (stored := _read_stored(Path(name), options)) is not None
    ):
        return LlamaLanguageModel(stored, cast(Any, executor))
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM

    if is_path(name):
        tensor_files(name)  # a `ValueError` that names the missing one
    config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ValueError(
            f"transformers has no causal language model of model_type {config.model_type!r}"
        )
    chosen = dtype_of(dtype, device, getattr(config, "dtype", None))
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        name,
        dtype=chosen,
        trust_remote_code=False,
        use_safetensors=True,
        device_map=device_map,
        ignore_mismatched_sizes=True,  # `check_complete` names them
        output_loading_info=True,
    )
    model, report = loaded
    check_complete(report)
    for parameter in model.parameters():
        if parameter.dtype in (
            torch.float16,
            torch.bfloat16,
        ):  # of FP8 weights, dequantised to the files' dtype
            parameter.data = parameter.data.to(chosen)
    if (
        device_map is not None
    ):  # its layers are placed already, and only transformers' own forward moves between devices
        return wrap(model, "transformers" if executor == "auto" else executor)
    return _wrapped(model.to(device), executor, options.weights, options.progress)


def wrap(model: Any, executor: str = "auto", weights: str = "float32") -> LanguageModel:
    """A transformers causal language model, on its device, as a `LanguageModel`. The model given
    is left as it is, in training mode or not; of one that `torch.compile` made, the original is
    taken.

    The executor "auto" takes our fast implementation for the Llama family and transformers' own
    for all others; "onnx" and "torch" are the two fast ones, "transformers" is its own. Weights
    "int8" are for "onnx". Raises `ValueError` if executor or weights are unknown or cannot run
    the model, the model's state cannot be rolled back, or its logits with a cache differ from
    those of its own forward, or it is no causal language model of transformers.
    """
    return _wrapped(model, executor, weights)


def _wrapped(
    model: Any,
    executor: str,
    weights: str,
    progress: Callable[[float], object] | None = None,
) -> LanguageModel:
    from naive_speculate.infer.transformers_model import pretrained

    check_executor(executor)
    model = pretrained(model)
    check_weights(weights, executor, model.device, str(model.dtype).removeprefix("torch."))
    if executor == "transformers":
        return _probed(model)
    obstacle = is_supported(model.config)
    if obstacle is not None and weights != "float32":
        raise ValueError(f"weights={weights!r} is for the Llama family: {obstacle}")
    if executor == "auto" and obstacle is not None:
        _log.info(
            "%s runs in transformers: %s", model.name_or_path or type(model).__name__, obstacle
        )
        return _probed(model)
    if model.get_output_embeddings() is None:
        raise ValueError(
            f"model must be a causal language model, {type(model).__name__} has no logits of tokens"
        )
    rounding = Rounding(progress) if weights == "int8" else None
    return LlamaLanguageModel.from_transformers(model, cast(Any, executor), rounding)


def device_of(device: str) -> torch.device:
    """A device by name; "auto" is CUDA where there is one. A `ValueError` if it is not
    available."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r} is not available: {one_line(error)}") from None
    return place


def dtype_of(dtype: str, device: torch.device, stored: Any) -> torch.dtype:
    """A dtype by name; "auto" is float32 on the CPU, elsewhere the dtype of the stored weights."""
    if dtype == "auto":
        if device.type == "cpu":
            return torch.float32
        return stored if isinstance(stored, torch.dtype) else torch.bfloat16
    named = getattr(torch, dtype, None)
    if not isinstance(named, torch.dtype) or not named.is_floating_point:
        raise ValueError(
            "dtype must be 'auto' or a floating-point type such as 'float32' or 'bfloat16', got"
            f" {dtype!r}"
        )
    return named


def _read_stored(folder: Path, options: LoadOptions) -> StoredLlama | None:
    if (stored := stored_dtype(folder)) is None:
        return None
    dtype = dtype_of(options.dtype, options.device, stored)
    return read_llama(folder, options.device, dtype, options.rounding)


def _load_gguf(
    argument: str, name: str, options: LoadOptions, device_map: str | None
) -> LanguageModel:
    if device_map is not None:
        raise ValueError(
            f"device_map={device_map!r} is not for GGUF files, such as {argument}={name!r}"
        )
    try:
        from naive_speculate.models.gguf.weights import read_gguf_llama, unread_by_transformers

        path, dtype = Path(name), dtype_of(options.dtype, options.device, None)
        if (
            options.executor != "transformers"
            and (stored := read_gguf_llama(path, options.device, dtype, options.rounding))
            is not None
        ):
            return LlamaLanguageModel(stored, cast(Any, options.executor))
        if options.rounding is not None:
            family = read_metadata(path).get("general.architecture")
            raise ValueError(f"weights={options.weights!r} is for the Llama family, it is {family}")
        if (reason := unread_by_transformers(path)) is not None:
            raise ValueError(f"{reason}, which transformers does not read; {BY_LLAMA_CPP}")
        return wrap(_from_gguf(path, dtype).to(options.device), "transformers")
    except (
        Exception
    ) as error:  # transformers, tokenizers and ONNX Runtime raise any kind for odd values
        raise load_error(argument, name, error) from None


def _from_gguf(path: Path, dtype: torch.dtype) -> Any:
    """The model of a file, read by transformers; a `ValueError` if it does not read the file, or
    weights are missing."""
    from transformers import AutoModelForCausalLM

    from naive_speculate.models.gguf.weights import ends_in

    metadata = read_metadata(path)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(path.parent),
            gguf_file=path.name,
            dtype=dtype,
            output_loading_info=True,
            **_head_size(metadata),
        )
    except (ValueError, KeyError, NotImplementedError) as error:  # such as of an architecture
        said = one_line(error).rstrip(".")
        raise ValueError(f"transformers does not read it ({said}); {BY_LLAMA_CPP}") from None
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"transformers finds no {missing[0]} in it; {BY_LLAMA_CPP}")
    model.config._name_or_path = model.name_or_path = str(path)
    ends, known = ends_in(metadata), model.generation_config.eos_token_id
    if isinstance(known, list):  # transformers reads all of Gemma 4; of others one alone, or none
        ends = list(dict.fromkeys(known + ends))
    model.generation_config.eos_token_id = ends
    return model


def _head_size(metadata: Mapping[str, Any]) -> dict[str, int]:
    """The size of a file's heads, which transformers 5.23 does not read in these families."""
    family = metadata.get("general.architecture")
    width = metadata.get(f"{family}.attention.key_length")
    return {"head_dim": width} if family in _HEAD_SIZES and width is not None else {}


def _probed(model: Any) -> "TransformersLanguageModel":
    from naive_speculate.infer.transformers_model import TransformersLanguageModel, rolls_back
    from naive_speculate.models.foreign.mtp import MtpHead, mtp_tensors
    from naive_speculate.models.recurrent import RecurrentLanguageModel

    language_model = (TransformersLanguageModel if rolls_back(model) else RecurrentLanguageModel)(
        model
    )
    if (
        model.device.type != "cuda" or torch.cuda.is_initialized()
    ):  # a server that forks must not initialise CUDA before
        language_model.probe()
    if mtp_tensors(language_model):
        language_model.load_mtp = partial(MtpHead, language_model)
    return language_model
