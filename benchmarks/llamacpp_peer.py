"""llama.cpp as a peer: its prebuilt server (the package xllamacpp), and the weights in `Q8_0`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import xllamacpp

from naive_speculate.infer.gguf.metadata import read_header
from naive_speculate.infer.gguf.weights import dequantised

_CONTEXT = 4096
_OWN = ("GGUF.", "general.architecture", "general.file_type")  # what the writer adds itself

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
    fields = gguf.GGUFReader(source).fields
    writer = gguf.GGUFWriter(str(path), fields["general.architecture"].contents())
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    for name, field in fields.items():
        if not name.startswith(_OWN):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    kinds = gguf.GGMLQuantizationType
    for name, tensor in read_header(source)[1].items():
        kind = kinds.F32 if len(tensor.shape) < 2 else kinds.Q8_0
        values = gguf.quants.quantize(dequantised(source, tensor).numpy(), kind)
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
