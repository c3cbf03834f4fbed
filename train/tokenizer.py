"""A byte-level BPE tokenizer (GPT-2's scheme): every text round-trips exactly, nothing is added on its own."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from train.config import END_OF_TEXT, END_OF_TEXT_ID


def train_tokenizer(passages: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn ``vocab_size`` pieces: the end-of-text token (id 0), all 256 bytes, then merges by frequency."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(passages, trainer=trainer)
    assert tokenizer.token_to_id(END_OF_TEXT) == END_OF_TEXT_ID
    return tokenizer


def for_transformers(tokenizer: Tokenizer, positions: int) -> PreTrainedTokenizerFast:
    """The same tokenizer as ``transformers`` saves and loads it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=positions,
    )
