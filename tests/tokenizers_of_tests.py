"""Real tokenizers of several kinds, trained on different text, with models that have their
width."""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from tests.tiny import tiny_llama

PROSE = [
    (
        "Once upon a time there was a little fox who lived in the forest with her mother and her"
        " brothers."
    ),
    (
        "The old king opened the door of the castle and said, “Who are you?” to the children who"
        " were waiting."
    ),
    (
        "She went into the garden, where the café was naïve about the weather, and there was"
        " nothing to be done."
    ),
    "In the forest there was another little king, and the other children were never there.",
    "日本語の文章 and 🎉 emoji 👩‍🚀 were there, too.",
] * 4
CODE = [
    "def there(self, other):\n    return self.other if other is None else other.there(self)\n",
    "for (let i = 0; i < children.length; i++) { door.open(children[i]); }\n",
    "the king and the fox were in the house when the other foxes came along the road to her\n",
    (
        "class Castle:\n    def __init__(self, king: str) -> None:\n        self.king = king  #"
        " größer als 日本\n"
    ),
] * 4
ODD = [
    "The little fox said there was a king.",
    "naïve café — “quoted” größer",
    "日本語の文章、そして🎉👩‍🚀👨‍👩‍👧 emoji",
    "e\u0301a\u0308 combining o\u0302\u0323",
    "nospacesatallinthisverylongwordwhichgoesonandon",
    "     long    whitespace\n\n\n\t\tand tabs   \n",
    "def f(x):\n    return [y for y in x if y != '</s>']  # <|end|>\n",
    " leading and trailing ",
    "a",
    "\u200b\ufeff\u00a0zero",
]


def wrapped(
    tokenizer: Tokenizer, bos: str | None, eos: str, unk: str | None = None
) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, unk_token=unk
    )


@cache
def byte_level(
    text: str = "prose", size: int = 420, eos: str = "<|end|>"
) -> PreTrainedTokenizerFast:
    """Byte-level BPE, as GPT-2's, without a beginning-of-sequence token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[eos], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_text(text), trainer)
    return wrapped(tokenizer, None, eos)


@cache
def unigram(text: str = "code", size: int = 260) -> PreTrainedTokenizerFast:
    """SentencePiece-like: Unigram with ▁, byte tokens and a beginning-of-sequence token."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(_text(text), trainer)
    state = json.loads(tokenizer.to_str())
    state["model"]["vocab"] += [[f"<0x{byte:02X}>", -30.0] for byte in range(256)]
    state["model"]["byte_fallback"] = True
    return wrapped(_spaced(state), "<s>", "</s>", "<unk>")


@cache
def legacy(text: str = "code", size: int = 300) -> PreTrainedTokenizerFast:
    """SentencePiece-like: BPE with ▁ put by a normalizer and byte tokens, as Llama 2's."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
    )
    tokenizer.train_from_iterator(_text(text), trainer)
    state = json.loads(tokenizer.to_str())
    vocabulary = state["model"]["vocab"]
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    state["pre_tokenizer"] = None
    steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    state["normalizer"] = json.loads(normalizers.Sequence(steps).__getstate__())
    return wrapped(_spaced(state), "<s>", "</s>", "<unk>")


KINDS = {"byte-level": byte_level, "unigram": unigram, "legacy": legacy}


def letters(*pieces: str) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of few tokens; the first is the end of a sequence."""
    vocabulary = {"<e>": 0} | {piece: place for place, piece in enumerate(pieces, start=1)}
    tokenizer = Tokenizer(
        models.BPE(vocabulary, [(piece[0], piece[1]) for piece in pieces if len(piece) == 2])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return wrapped(tokenizer, None, "<e>")


def shuffled(tokenizer: Any, seed: int = 0) -> tuple[PreTrainedTokenizerFast, list[int]]:
    """The same byte-level tokenizer with other ids; and the new id of each old one."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    ids = list(range(len(tokenizer)))
    random.Random(seed).shuffle(ids)
    state["model"]["vocab"] = {
        piece: ids[token] for piece, token in state["model"]["vocab"].items()
    }
    for entry in state["added_tokens"]:
        entry["id"] = ids[entry["id"]]
    state["added_tokens"].sort(key=lambda entry: entry["id"])
    state["post_processor"] = None
    return (
        wrapped(Tokenizer.from_str(json.dumps(state)), tokenizer.bos_token, tokenizer.eos_token),
        ids,
    )


def llama(tokenizer: Any, seed: int, num_layers: int = 1, positions: int = 200) -> LlamaForCausalLM:
    """A random Llama of a tokenizer's width."""
    ends = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id}
    return tiny_llama(num_layers, seed, positions, vocab_size=len(tokenizer), **ends)


def save(model: LlamaForCausalLM, tokenizer: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _text(name: str) -> list[str]:
    return {"prose": PROSE, "code": CODE}[name]


def _spaced(state: dict[str, Any]) -> Tokenizer:
    tokenizer = Tokenizer.from_str(json.dumps(state))
    steps = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    tokenizer.decoder = decoders.Sequence(steps)
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", bos)]
    )
    return tokenizer
