"""Options that ban tokens by what was generated before. The decoder asks a `Mask`; `guides`
implements them."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from naive_speculate.sampling.registry import Registry


class Mask(Protocol):
    """Follows one output. Any history may be given: the generated tokens."""

    def apply(self, scores: torch.Tensor, history: list[int]) -> None:
        """Set the scores `[vocab_size]` of banned tokens to -inf, in place."""

    def forced_text(self, history: list[int]) -> str:
        """The text that must follow, whatever else does; "" where nothing must."""


class MaskMaker(Protocol):
    """Makes the masks of an option, for one tokenizer."""

    def __init__(self, tokenizer: Any, vocab_size: int, stop_token_ids: Sequence[int]) -> None: ...

    @staticmethod
    def checked(value: Any) -> Any:
        """The option's value in one form; a `ValueError` if it is none."""

    @staticmethod
    def plain(value: Any) -> Any:
        """The value as JSON has it."""

    def mask(self, value: Any, prompt_token_ids: Sequence[int]) -> Mask:
        """A mask for one sequence."""


MASKS: Registry[type[MaskMaker]] = Registry(
    {
        "filter_words": "naive_speculate.guides.words:FilterMaker",
        "guided_decoding": "naive_speculate.guides.guided:GrammarCompiler",
    }
)
"""What makes the masks, by option."""
