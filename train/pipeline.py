"""The stages of making a pair, each skipped when the work folder already holds its result."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from train.checkpoint import CheckpointFolder, differences
from train.config import ModelShape, Recipe
from train.corpus import fingerprint, read_passages, read_text, split_passages
from train.data import TokenArray, TokenStream, encode, open_tokens, save_json, write_tokens
from train.errors import TrainingError
from train.loop import Budget, LossFunction, Training, half_precision, mean_loss, model_logits, next_token_loss
from train.stories import tell_many
from train.tokenizer import load_tokenizer, train_tokenizer

VALID_SHARE = 0.01  # of the passages, held out when the user names no validation file


@dataclass(frozen=True)
class Workshop:
    """Where a run reads and writes, and on what device it computes."""

    recipe: Recipe
    work: Path
    device: torch.device
    compile: bool
    init: Path | None = None  # an exported target whose tokenizer and weights the run starts from
    init_draft: Path | None = None  # an exported draft whose weights distillation starts from

    @property
    def tokenizer_path(self) -> Path:
        return self.work / "tokenizer.json"

    def tokens(self, name: str) -> TokenArray:
        return open_tokens(self.work / f"{name}.tokens")

    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.tokenizer_path)

    def data_card(self) -> dict[str, Any]:
        card: dict[str, Any] = json.loads((self.work / "data.json").read_text(encoding="utf-8"))
        return card


def prepare(shop: Workshop, corpus: Path, valid: Path | None) -> None:
    """Tokenizer, training tokens (books and stories, shuffled together), and held-out tokens."""
    source: dict[str, Any] = {
        "files": fingerprint(corpus),
        "valid": valid.name if valid else None,
        "vocab_size": shop.recipe.vocab_size,
        "story_share": shop.recipe.story_share,
        "seed": shop.recipe.seed,
        "init": shop.init.name if shop.init else None,
    }
    card_path = shop.work / "data.json"
    if card_path.exists():
        found = differences(shop.data_card()["source"], source)
        if found:
            raise TrainingError(f"{shop.work} was made from other data ({'; '.join(found)}); choose another --work")
        return
    shop.work.mkdir(parents=True, exist_ok=True)
    books = list(read_passages(corpus))
    if valid is not None:
        held_out = list(read_passages_of(valid))
    else:
        random.Random(shop.recipe.seed).shuffle(books)
        count = max(1, round(len(books) * VALID_SHARE))
        held_out, books = books[:count], books[count:]
    if not books:
        raise TrainingError(f"the corpus folder has no passage left to train on: {corpus}")
    share = shop.recipe.story_share
    characters = int(sum(map(len, books)) * share / (1 - share))
    stories = list(tell_many(shop.recipe.seed, characters))
    tokenizer = given_tokenizer(shop.init) if shop.init else train_tokenizer(books + stories, shop.recipe.vocab_size)
    if tokenizer.get_vocab_size() < shop.recipe.vocab_size:
        learned = tokenizer.get_vocab_size()
        raise TrainingError(f"too little text: it gives {learned} of the {shop.recipe.vocab_size} pieces of the tokenizer")
    tokenizer.save(str(shop.tokenizer_path))
    book_arrays, story_arrays = encode(books, tokenizer), encode(stories, tokenizer)
    train_tokens = write_tokens(book_arrays + story_arrays, shop.work / "train.tokens", shop.recipe.seed)
    valid_tokens = write_tokens(encode(held_out, tokenizer), shop.work / "valid.tokens", shop.recipe.seed)
    shortest = min(train_tokens, valid_tokens)
    if shortest <= shop.recipe.positions:
        raise TrainingError(f"too little text: {shortest} tokens where more than {shop.recipe.positions} are needed")
    save_json(
        {
            "source": source,
            "train_tokens": train_tokens,
            "story_tokens": sum(map(len, story_arrays)),
            "valid_tokens": valid_tokens,
            "valid_bytes": sum(len(text.encode()) for text in held_out),
        },
        card_path,
    )


def read_passages_of(path: Path) -> list[str]:
    if not path.is_file():
        raise TrainingError(f"validation file not found: {path}")
    return list(split_passages(read_text(path)))


def given_tokenizer(folder: Path) -> Tokenizer:
    if not (folder / "tokenizer.json").is_file():
        raise TrainingError(f"--init: no exported model in {folder}")
    return load_tokenizer(folder / "tokenizer.json")


def given_weights(model: LlamaForCausalLM, folder: Path, option: str, grow: bool = False) -> None:
    """Put an exported model's weights into ``model``, which must be of the same shape; with ``grow`` it may have more
    layers, which then add nothing until they have learned something."""
    if not (folder / "config.json").is_file():
        raise TrainingError(f"{option}: no exported model in {folder}")
    given = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    keys = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]
    known, layers = given.config.num_hidden_layers, model.config.num_hidden_layers
    if grow and known < layers:
        keys.remove("num_hidden_layers")
    there, here = ({key: getattr(each.config, key) for key in keys} for each in (given, model))
    found = differences(there, here)
    if found:
        raise TrainingError(f"{option}: {folder} has another shape ({'; '.join(found)})")
    model.load_state_dict(given.state_dict(), strict=known == layers)
    for layer in model.model.layers[known:]:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)


def new_model(shop: Workshop, shape: ModelShape) -> LlamaForCausalLM:
    torch.manual_seed(shop.recipe.seed)
    with shop.device:
        return LlamaForCausalLM(shape.llama_config(shop.recipe.vocab_size, shop.recipe.positions))


def compiled(shop: Workshop, loss: LossFunction) -> LossFunction:
    """``loss`` under autocast, and compiled where that is wanted and a C++ compiler is at hand."""
    can_compile = shop.device.type == "cuda" or shutil.which("g++") is not None
    inner = torch.compile(loss, dynamic=False) if shop.compile and can_compile else loss

    def with_half_precision(tokens: Tensor) -> Tensor:
        with half_precision(shop.device):
            result: Tensor = inner(tokens)
        return result

    return with_half_precision


def language_model_loss(model: LlamaForCausalLM) -> LossFunction:
    def loss(tokens: Tensor) -> Tensor:
        return next_token_loss(model_logits(model, tokens[:, :-1]), tokens[:, 1:])

    return loss


def validation(shop: Workshop, model: LlamaForCausalLM, max_windows: int | None = 64) -> float:
    length = shop.recipe.sequence_length
    rows = max(1, shop.recipe.micro_tokens // length)
    return mean_loss(model, shop.tokens("valid"), length, rows, max_windows)


def train_target(shop: Workshop, budget: Budget) -> tuple[LlamaForCausalLM, int]:
    """The model and the number of steps it has been trained for."""
    model = new_model(shop, shop.recipe.target)
    if shop.init:
        given_weights(model, shop.init, "--init")
    step = Training(
        name="target",
        model=model,
        loss=compiled(shop, language_model_loss(model)),
        stream=TokenStream(shop.tokens("train"), shop.recipe.seed),
        recipe=shop.recipe,
        checkpoints=CheckpointFolder(
            shop.work, "target", {"recipe": shop.recipe.target_settings(), "data": shop.data_card()["source"]}
        ),
        log_path=shop.work / "target.csv",
        validate=lambda: validation(shop, model),
    ).run(budget)
    return model, step
