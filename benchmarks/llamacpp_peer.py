"""llama.cpp as a peer: its prebuilt server (the package xllamacpp), and the weights in `Q8_0`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import xllamacpp

from benchmarks.gguf_copy import write_like

_CONTEXT = 4096

Measure = Callable[[list[int]], float]
"""Tokens per second after a prompt, which is left out."""


def peer(target: Path, kind: str, draft: Path, new_tokens: int, threads: int) -> Measure:
    """llama.cpp with a kind of drafts, "NONE" for plain decoding: greedy, past end tokens."""
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = str(target), _CONTEXT, 1
    params.warmup, params.verbosity, params.fit_params = False, 0, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    kinds, drafts = xllamacpp.common_speculative_type, params.speculative
    drafts.types = [getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{kind}")]
    if kind == "DRAFT_SIMPLE":
        drafts.draft.mparams.path = str(draft)
        drafts.draft.cpuparams.n_threads = drafts.draft.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    fixed = {"n_predict": new_tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False}

    def measure(prompt: list[int]) -> float:
        answer: Any = server.handle_completions(fixed | {"prompt": prompt})
        return float(answer["timings"]["predicted_per_second"])

    return measure


def as_q8_0(source: Path, path: Path) -> None:
    """Write a GGUF file with the metadata of another and its values, matrices as `Q8_0`."""
    q8_0 = gguf.GGMLQuantizationType.Q8_0

    def converted(values: Any) -> tuple[Any, gguf.GGMLQuantizationType | None]:
        return (gguf.quants.quantize(values, q8_0), q8_0) if values.ndim > 1 else (values, None)

    write_like(source, path, gguf.LlamaFileType.MOSTLY_Q8_0, converted)
