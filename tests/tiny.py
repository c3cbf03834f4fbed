"""Tiny random models for tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from naive_speculate import ModelPair
from naive_speculate.infer import LanguageModel
from naive_speculate.models.llama.model import LlamaLanguageModel


def shape(**changes: Any) -> dict[str, Any]:
    """The numbers of a tiny model's configuration."""
    sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 80}
    return sizes | heads | {"eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 0} | changes


def tiny_llama(num_layers: int, seed: int, positions: int = 200, **more: Any) -> LlamaForCausalLM:
    """A random Llama with large weights, so that its distributions are far from uniform."""
    torch.manual_seed(seed)
    changes = dict.fromkeys(("eos_token_id", "bos_token_id", "pad_token_id")) | more
    sizes = {"num_hidden_layers": num_layers, "max_position_embeddings": positions}
    return LlamaForCausalLM(LlamaConfig(**shape(**sizes, **changes), initializer_range=0.3)).eval()


def noisy_pair(wrap: Callable[[LlamaForCausalLM], LanguageModel] | None = None) -> ModelPair:
    """A random target, and a draft that is the target with a little noise, so that some drafts
    are kept and some not.

    Args:
        wrap: Makes a `LanguageModel` of each; None for this project's own forward in torch,
            which takes half the time of transformers'.
    """
    wrap = wrap or (lambda model: LlamaLanguageModel.from_transformers(model, "torch"))
    return ModelPair(wrap(tiny_llama(1, seed=0)), wrap(noised(tiny_llama(1, seed=0), 0.05)))


@torch.no_grad()
def noised(model: Any, amount: float) -> Any:
    """The model, with so much noise added to every weight."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter += amount * torch.randn(
            parameter.shape, generator=generator, dtype=parameter.dtype
        )
    return model


def save_noisy(source: Path, folder: Path) -> None:
    """The model and tokenizer in a folder once more, every weight with a tenth of noise."""
    noisy = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in noisy.parameters():
            parameter += 0.1 * parameter.std() * torch.randn(parameter.shape, generator=generator)
    noisy.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def save_model(model: LlamaForCausalLM, folder: Path) -> None:
    """As the hub has models: with a tokenizer, to which every text is one word."""
    model.save_pretrained(folder)
    words(model.config.vocab_size, splits=False).save_pretrained(folder)


def words(vocab_size: int = 97, splits: bool = True, **options: Any) -> PreTrainedTokenizerFast:
    """A tokenizer whose words are w0, w1 and so on; any other is w0. It splits a text into
    words, if it `splits`."""
    tokenizer = Tokenizer(
        WordLevel({f"w{number}": number for number in range(vocab_size)}, unk_token="w0")
    )
    if splits:
        tokenizer.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)
