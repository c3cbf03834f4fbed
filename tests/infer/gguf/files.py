"""GGUF files of small random models. llama.cpp is imported when one is loaded: most of the tests
run without it."""

import tempfile
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from naive_speculate.infer.gguf.export import export
from naive_speculate.infer.gguf.model import GgufLanguageModel


def written(
    model: PreTrainedModel, path: Path, tokenizer: Any = None, dtype: str = "float32"
) -> Path:
    export(model, tokenizer, path, dtype)
    return path


def loaded(model: PreTrainedModel) -> GgufLanguageModel:
    """The model as llama.cpp has it; the file is gone, as far as one can see."""
    with tempfile.TemporaryDirectory() as folder:
        return GgufLanguageModel(written(model, Path(folder) / "model.gguf"))
