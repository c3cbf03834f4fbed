"""SmolLM2 and a draft for it, in the engines' formats. The draft is SmolLM2 with matrices that were
rounded to four bits once more: it makes nothing faster, but is often right, and all can load it."""

import json
from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from benchmarks.gguf_copy import write_like
from naive_speculate.models.known import KNOWN

QUESTIONS = (
    "Write a short story about a dog who sails a boat.",
    "Explain how rain forms, step by step.",
    "List the planets of the solar system, with a sentence about each.",
    "Compare cats and dogs as pets.",
)
_ROUNDED = gguf.GGMLQuantizationType.Q4_0


def write(folder: Path) -> None:
    """Write the models, and the prompts' token ids as `prompts.json`, the last of them."""
    folder.mkdir(parents=True, exist_ok=True)
    source = KNOWN["smollm2"].find()[0]
    for name, rounded in (("target", False), ("draft", True)):
        for half in (True, False):
            write_gguf(source, folder / f"{name}{'-f16' * half}.gguf", rounded, half)
        named = {"gguf_file": f"{name}.gguf"}
        tokenizer = AutoTokenizer.from_pretrained(folder, **named)
        read = AutoModelForCausalLM.from_pretrained(folder, **named, dtype=torch.float32)
        del read.config.quantization_config  # such a model cannot be saved
        model = LlamaForCausalLM(read.config)
        model.load_state_dict(read.state_dict())
        model.save_pretrained(folder / name)
        state_rope_base(folder / name / "config.json")
        tokenizer.save_pretrained(folder / name)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
        )
        for question in QUESTIONS
    ]
    (folder / "prompts.json").write_text(json.dumps(prompts), encoding="utf-8")


def state_rope_base(path: Path) -> None:
    """State the base of rotations also where transformers 4 had it: mlx-lm's Llama looks there
    only, and silently takes 10,000 otherwise."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    path.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def write_gguf(source: Path, path: Path, rounded: bool, half: bool) -> None:
    """The same metadata, with matrices in float32 or float16, rounded to four bits before."""

    def converted(values: Any) -> tuple[Any, None]:
        if values.ndim > 1 and rounded:
            values = gguf.quants.dequantize(gguf.quants.quantize(values, _ROUNDED), _ROUNDED)
        return values.astype("float16") if half and values.ndim > 1 else values, None

    kinds = gguf.LlamaFileType
    write_like(source, path, kinds.MOSTLY_F16 if half else kinds.ALL_F32, converted)
