"""Finds a tie that flips: two tokens whose order in half precision depends on the number of rows in the forward."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from naive_speculate.differing.compare import Margin, margins_at
from naive_speculate.differing.scores import Scores
from naive_speculate.text import Vocabulary

MOST = 20
BEFORE = 16


@dataclass(frozen=True)
class Flip:
    """A position where one row and several rows have different most probable tokens in half precision."""

    before: str  # the end of the text before it
    # one, many: the most probable token with one row, and with `num_rows`
    one: str
    many: str
    num_rows: int  # k + 1
    margins: tuple[Margin, ...]  # as in `Difference`; A is `one`, B is `many`

    to_dict = asdict


def find_flip(full: Scores, half: Scores, token_ids: Sequence[int], start: int, *, num_rows: int = 5) -> Flip | None:
    """The first flip among the positions, from `start` (1 or more) on, where float32's two most probable tokens are closest;
    None if there is none. `full` and `half` are the same target in float32 and in half precision; `num_rows` is
    k + 1. Raises `ValueError` if `start` or `num_rows` is out of range."""
    if not 1 <= start < len(token_ids):
        raise ValueError(f"start must be from 1 to {len(token_ids) - 1}, got {start}")
    if num_rows < 2:
        raise ValueError(f"num_rows must be 2 or more, got {num_rows}")
    top = full.whole(token_ids)[start - 1 : -1].topk(2, dim=-1).values
    vocabulary = Vocabulary(full.pair.tokenizer)
    for position in (top[:, 0] - top[:, 1]).argsort()[:MOST].tolist():
        prefix = list(token_ids[: start + position])
        one, many = (int(half.last(prefix, rows).argmax()) for rows in (1, num_rows))
        if one != many:
            margins = margins_at(full, half, prefix, (one, many), num_rows)
            before = "".join(vocabulary.texts(prefix[-BEFORE:]))
            return Flip(before, vocabulary.text_of(one), vocabulary.text_of(many), num_rows, margins)
    return None
