"""The stages of making a pair, each skipped when the work folder already holds its result."""

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

from naive_speculate.sampling.words import classroom_words
from train.checkpoint import CheckpointFolder, differences
from train.config import ModelShape, Recipe
from train.corpus import fingerprint, for_a_class, read_passages, text_files
from train.data import TokenArray, TokenStream, encode, open_tokens, save_json, write_tokens
from train.errors import TrainingError
from train.grow import can_grow, grow
from train.legs import earlier_legs
from train.loop import Budget, LossFunction, Training, mean_loss, model_logits, next_token_loss
from train.precision import half_precision
from train.stories import tell_many
from train.tokenizer import train_tokenizer

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
    init_head: Path | None = None  # an exported head, likewise

    def tokens(self, name: str) -> TokenArray:
        return open_tokens(self.work / f"{name}.tokens")

    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(str(self.work / "tokenizer.json"))

    def data_card(self) -> dict[str, Any]:
        card: dict[str, Any] = json.loads((self.work / "data.json").read_text(encoding="utf-8"))
        return card


def prepare(shop: Workshop, corpus: Sequence[Path], valid: Path | None) -> None:
    """Tokenizer, training tokens (books and stories, shuffled together), and held-out tokens.

    ``corpus``: text files and folders of them; a validation file that lies among them is not trained on.
    """
    if valid is not None and not valid.is_file():
        raise TrainingError(f"validation file not found: {valid}")
    files = [path for path in text_files(corpus) if valid is None or not path.samefile(valid)]
    source: dict[str, Any] = {
        "files": fingerprint(files),
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
        if "earlier_legs" not in shop.data_card():  # a work folder of before they were kept
            save_json(shop.data_card() | {"earlier_legs": earlier_legs(shop.init)}, card_path)
        return
    legs = earlier_legs(shop.init)  # now, since a pair may be exported to where it went on from
    shop.work.mkdir(parents=True, exist_ok=True)
    books, taken_out = for_a_class(read_passages(files), classroom_words())
    if valid is not None:
        held_out = list(read_passages([valid]))
    else:
        random.Random(shop.recipe.seed).shuffle(books)
        count = max(1, round(len(books) * VALID_SHARE))
        held_out, books = books[:count], books[count:]
    if not books:
        raise TrainingError(f"the corpus has no passage left to train on: {', '.join(map(str, corpus))}")
    share = shop.recipe.story_share
    characters = int(sum(map(len, books)) * share / (1 - share))
    stories = list(tell_many(shop.recipe.seed, characters))
    tokenizer = given_tokenizer(shop.init) if shop.init else train_tokenizer(books + stories, shop.recipe.vocab_size)
    if tokenizer.get_vocab_size() < shop.recipe.vocab_size:
        learned = tokenizer.get_vocab_size()
        raise TrainingError(f"too little text: it gives {learned} of the {shop.recipe.vocab_size} pieces of the tokenizer")
    tokenizer.save(str(shop.work / "tokenizer.json"))
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
            "earlier_legs": legs,
            "paragraphs_taken_out": taken_out,
            "valid_tokens": valid_tokens,
            "valid_bytes": sum(len(text.encode()) for text in held_out),
        },
        card_path,
    )


def given_tokenizer(folder: Path) -> Tokenizer:
    if not (folder / "tokenizer.json").is_file():
        raise TrainingError(f"--init: no exported model in {folder}")
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def given_weights(model: LlamaForCausalLM, folder: Path, option: str) -> None:
    """Put an exported model's weights into ``model``, which may be wider and deeper: it then begins with what the
    exported one has learned (see ``train.grow``).

    Raises:
        TrainingError: If there is no such model, or ``model`` has no room for it.
    """
    if not (folder / "config.json").is_file():
        raise TrainingError(f"{option}: no exported model in {folder}")
    given = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if not can_grow(given, model):
        keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim")
        there, here = ({key: getattr(each.config, key) for key in keys} for each in (given, model))
        raise TrainingError(f"{option}: {folder} does not fit into the recipe's shape ({'; '.join(differences(there, here))})")
    grow(given, model)


def new_model(shop: Workshop, shape: ModelShape) -> LlamaForCausalLM:
    torch.manual_seed(shop.recipe.seed)
    with shop.device:
        return LlamaForCausalLM(shape.llama_config(shop.recipe.vocab_size, shop.recipe.positions))


def compiled(shop: Workshop, loss: LossFunction) -> LossFunction:
    """``loss`` under autocast, and compiled where that is wanted and a C++ compiler is at hand."""
    can_compile = shop.device.type == "cuda" or shutil.which("g++") is not None
    inner = torch.compile(loss, dynamic=False) if shop.compile and can_compile else loss

    def with_half_precision(batch: Any) -> Tensor:
        with half_precision(shop.device):
            result: Tensor = inner(batch)
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
