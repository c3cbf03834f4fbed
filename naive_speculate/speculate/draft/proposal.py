"""The interface of drafters, and what they propose.

A new drafter is a class with `propose`, and a line in the registry (`DRAFTERS` in this package).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import torch

from naive_speculate.events.record import StepRecord
from naive_speculate.infer.device import on_device
from naive_speculate.infer.slots import Slot, SlotPool
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.suffix_trie import EarlierOutputs
from naive_speculate.speculate.rules import pick
from naive_speculate.speculate.sequence import SequenceState


class Proposal(NamedTuple):
    """Draft windows of a batch."""

    token_ids: torch.Tensor  # int64, shape `[batch_size, k]`; padded after a row's length
    # the distributions that they were drawn from, shape `[batch_size, k, vocab_size]`; one-hot
    # where nothing was drawn. None only where no row needs them (`SequenceState.needs_probs`)
    probs: torch.Tensor | None
    lengths: list[int]  # drafts in each row, 0 to k
    # by row, the position in prompt and output from which its window was copied, token by token;
    # None for a row whose window was not copied, and None for all
    copied_from: list[int | None] | None = None
    # if a row drafts the most probable tokens, its `probs` are one-hot, and this holds the draft
    # model's real distributions. Same shape as `probs`; None if every row's are `probs`
    model_probs: torch.Tensor | None = None
    forced: Collection[
        int
    ] = ()  # rows whose window is what their grammar forces, whichever drafter they have

    @classmethod
    def certain(
        cls,
        rows: Sequence[SequenceState],
        windows: Sequence[list[int]],
        vocab_size: int,
        device: torch.device,
    ) -> "Proposal":
        """Windows of tokens that no model drew, which may be empty: point masses."""
        lengths = [len(window) for window in windows]
        padded = [window + [0] * (max(lengths) - len(window)) for window in windows]
        token_ids = on_device(padded, device, torch.int64).reshape(len(rows), max(lengths))
        probs = (
            torch.nn.functional.one_hot(token_ids, vocab_size).float()
            if any(row.needs_probs for row in rows)
            else None
        )
        return cls(token_ids, probs, lengths)

    @classmethod
    def of_model(
        cls,
        rows: Sequence[SequenceState],
        token_ids: torch.Tensor,
        probs: torch.Tensor | None,
        lengths: list[int],
    ) -> "Proposal":
        """Windows that a model drafted with these distributions; those of rows that draft its
        argmax are point masses."""
        taken = [
            index
            for index, row in enumerate(rows)
            if row.draft_sampling == "argmax" and not row.greedy
        ]
        if probs is None or not taken:
            return cls(token_ids, probs, lengths)
        used, at = probs.clone(), on_device(taken, probs.device)
        used[at] = torch.nn.functional.one_hot(token_ids[at], probs.shape[-1]).to(probs.dtype)
        return cls(token_ids, used, lengths, None, probs)

    def windows(self) -> list[list[int]]:
        """Each row's draft tokens, without padding; waits for the device."""
        return [
            window[:length]
            for window, length in zip(self.token_ids.tolist(), self.lengths, strict=True)
        ]


class BatchDrafter:
    """Drafts for the rows of one batch. It owns its history: whatever it remembers of a row
    begins with `admit`, follows `commit` and ends with `release`. `pair`: the models;
    `vocab_size`: width of the probabilities; `device`: where they are needed."""

    # title, about: for menus: a name, and one line about what it drafts from and when to choose it
    title: str = ""
    about: str = ""
    phrase: str = "the drafter"  # its name in a sentence
    role: str = "target"  # which of the pair's models (`ModelPair.names`) it needs
    layers: tuple[
        int,
        ...,
        # layers of the target whose hidden states `observe` and `commit` receive; 0 is the
        # embeddings
    ] = ()
    drafts_trees: bool = False  # whether it has `propose_tree`
    translates: bool = (
        False  # whether its model has another tokenizer, so that `pair.translation` is used
    )
    copies_or_asks: bool = (
        False  # whether each step copies or asks a model, and so needs a `CopyOrAskWindow`
    )
    needs_check: bool = True  # whether its proposals are checked: not within this package
    # outputs of earlier runs, where the decoder keeps them; set after the drafter was made
    earlier: EarlierOutputs | None = None
    # the rows of the target's cache that hold these sequences; set after the drafter was made
    target_rows: Callable[[Sequence[SequenceState]], Any]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.needs_check = cls.__module__.partition(".")[0] != __name__.partition(".")[0]

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        self.vocab_size = vocab_size
        self.device = device

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        """What this pair lacks for such a drafter, in words; None if nothing."""
        return None

    @classmethod
    def suited_to(cls, pair: ModelPair) -> "type[BatchDrafter]":
        """This class, or the one that drafts in its place for such a pair."""
        return cls

    @staticmethod
    def head_of(pair: ModelPair) -> Any:
        """The head that reads the target's hidden states; None where the drafter has none."""
        return None

    def admit(self, row: SequenceState) -> None:
        """A row joins the batch."""

    def release(self, row: SequenceState) -> None:
        """A row leaves the batch."""

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        """Copy what is remembered of the prompt that `source` has prefilled and `row` shares."""

    def max_window(self, row: SequenceState) -> int:
        """The most tokens that it can draft for a row."""
        return row.num_remaining - 1

    def ready(self, row: SequenceState) -> bool:
        """Whether it can draft for this row without more prefill."""
        return True

    def observe(
        self, rows: Sequence[SequenceState], starts: Sequence[int], features: Sequence[torch.Tensor]
    ) -> None:
        """Receive the target's hidden states of a prefilled chunk: in all, those of every prompt
        token but the last, whose states come with the first `commit`. Called before
        `prefill` where `layers` is not empty. A failed chunk is retried. `rows`: rows with a
        chunk; `starts`: position of the first token of each chunk; `features`: hidden states of
        `layers`, concatenated, each of shape `[num_tokens, len(layers) * hidden_size]`."""

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        """Process the next chunk of what a row lacks, the prompt above all."""

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        """Draft at most `limits[i]` tokens, which is positive, for each row."""
        raise TypeError(f"drafter {type(self).__name__} must define propose(rows, limits)")

    def commit(
        self,
        rows: Sequence[SequenceState],
        records: Sequence[StepRecord],
        features: torch.Tensor | None,
    ) -> None:
        """Follow a step, after which the rows' `token_ids` are the committed ones.

        Args:
            rows: The step's rows that this drafter drafts for.
            records: What the step did to each.
            features: The target's hidden states of `layers`, concatenated, at the last committed
                token and each draft, shape `[len(rows), k + 1, len(layers) * hidden_size]`; None
                where `layers` is empty.
        """

    def rewind(self, rows: Sequence[SequenceState]) -> None:
        """A step failed: forget everything but the committed tokens."""


class SlotDrafter(BatchDrafter, ABC):
    """A drafter whose model, a head or the pair's draft model, has a cache; `slots` has the slot
    of each row in it. A subclass proposes with `_propose`."""

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device)
        self.head = self.head_of(pair)
        self.layers = () if self.head is None else self.head.layers
        model: Any = pair.drafting if self.head is None else self.head
        self.pool = SlotPool(model)
        self.slots: dict[SequenceState, Slot] = {}

    def admit(self, row: SequenceState) -> None:
        self.slots[row] = self.pool.allocate()

    def release(self, row: SequenceState) -> None:
        self.pool.free(self.slots.pop(row))

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        if self.slots[source].num_tokens:
            self.slots[row].copy_from(self.slots[source])
            self.slots[row].keep(len(self.history(row)) - 1)

    def history(self, row: SequenceState) -> list[int]:
        """The tokens that the model reads of a row: its committed ones."""
        return row.token_ids

    def view(self, rows: Sequence[SequenceState]) -> Any:
        """The rows' slots, as the cache of a forward."""
        return self.pool.view([self.slots[row] for row in rows])

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        """See `BatchDrafter.propose`; in the order of the rows' slots, so that a forward covers
        one slice of the cache."""
        self.pool.pack([self.slots[row] for row in rows])
        order = sorted(range(len(rows)), key=lambda index: self.slots[rows[index]].row)
        proposal = self._propose(
            [rows[index] for index in order], [limits[index] for index in order]
        )
        return merge([proposal], [order], self.vocab_size)

    @abstractmethod
    def _propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        """See `propose`; the rows are in the order of their slots."""


def merge(parts: Sequence[Proposal], groups: Sequence[list[int]], vocab_size: int) -> Proposal:
    """One proposal from those of groups of a batch; `groups` are the indices of each group's
    rows in it."""
    if len(parts) == 1 and groups[0] == sorted(groups[0]):
        return parts[0]
    total = sum(map(len, groups))
    width = max(part.token_ids.shape[1] for part in parts)
    token_ids = parts[0].token_ids.new_zeros(total, width)
    known = next((part.probs for part in parts if part.probs is not None), None)
    probs = None if known is None else known.new_zeros(total, width, vocab_size)
    model_probs = (
        None
        if probs is None or all(part.model_probs is None for part in parts)
        else torch.zeros_like(probs)
    )
    lengths = [0] * total
    copied_from: list[int | None] = [None] * total
    for part, members in zip(parts, groups, strict=True):
        k, at = part.token_ids.shape[1], on_device(members, token_ids.device)
        token_ids[at, :k] = part.token_ids
        if probs is not None and part.probs is not None:
            probs[at, :k] = part.probs.to(probs.dtype)
            if model_probs is not None:
                model_probs[at, :k] = (
                    part.probs if part.model_probs is None else part.model_probs
                ).to(probs.dtype)
        for member, length, source in zip(
            members, part.lengths, part.copied_from or [None] * len(members), strict=True
        ):
            lengths[member], copied_from[member] = length, source
    forced = {
        members[index] for part, members in zip(parts, groups, strict=True) for index in part.forced
    }
    copies = None if all(part.copied_from is None for part in parts) else copied_from
    return Proposal(token_ids, probs, lengths, copies, model_probs, forced)


def check_proposal(
    proposal: Proposal, rows: Sequence[SequenceState], limits: Sequence[int], vocab_size: int
) -> None:
    """Check the proposal of a registered drafter for its rows, within limits; this waits for the
    device. Raises `ValueError`, naming the drafter and what is wrong."""
    name, batch_size, k = rows[0].drafter, len(rows), proposal.token_ids.shape[-1]
    token_ids, probs, lengths, copied_from = proposal[:4]
    _expect(name, "token_ids", token_ids, (batch_size, k), token_ids.dtype == torch.int64, "int64")
    if len(lengths) != batch_size or not all(
        0 <= n <= min(k, limit) for n, limit in zip(lengths, limits, strict=True)
    ):
        raise ValueError(
            f"drafter {name!r} proposed lengths {lengths!r:.80} of k={k} within the limits"
            f" {limits!r:.80}"
        )
    if token_ids.numel() and not 0 <= int(token_ids.min()) <= int(token_ids.max()) < vocab_size:
        outside = int(token_ids.max() if token_ids.min() >= 0 else token_ids.min())
        raise ValueError(
            f"drafter {name!r} proposed token {outside}, outside the vocabulary of {vocab_size}"
        )
    if copied_from is not None and not _within(copied_from, lengths, rows):
        raise ValueError(
            f"drafter {name!r} proposed copied_from {copied_from!r:.80}, which is not in the rows'"
            " texts"
        )
    if probs is None:
        if any(length > 0 and not row.greedy for length, row in zip(lengths, rows, strict=True)):
            raise ValueError(
                f"drafter {name!r} proposed with probs=None, which only greedy decoding can do"
                " without"
            )
        return
    _expect(
        name,
        "probs",
        probs,
        (batch_size, k, vocab_size),
        probs.is_floating_point(),
        "floating point",
    )
    for row, length in enumerate(lengths):
        sums = probs[row, :length].double().sum(dim=-1)
        rounding = max(1e-3, 2 * torch.finfo(probs.dtype).eps)
        if not bool(((sums - 1).abs() < rounding).all()) or bool((probs[row, :length] < 0).any()):
            raise ValueError(
                f"drafter {name!r} proposed probs that are not probabilities: they sum to"
                f" {sums.tolist()!r:.80}"
            )
        if not bool((pick(probs[row, :length], token_ids[row, :length]) > 0).all()):
            raise ValueError(f"drafter {name!r} proposed a token to which its own probs give 0")


def _within(
    copied_from: Sequence[int | None], lengths: Sequence[int], rows: Sequence[SequenceState]
) -> bool:
    """Whether every copied window lies in its row's text."""
    return len(copied_from) == len(rows) and all(
        source is None or (isinstance(source, int) and 0 <= source <= len(row.token_ids) - length)
        for source, length, row in zip(copied_from, lengths, rows, strict=True)
    )


def _expect(
    name: str,
    field: str,
    tensor: torch.Tensor,
    shape: tuple[int, ...],
    dtype_fits: bool,
    dtype: str,
) -> None:
    if tuple(tensor.shape) != shape or not dtype_fits:
        got = f"{list(tensor.shape)} of {tensor.dtype}"
        raise ValueError(
            f"drafter {name!r} must propose {field} of shape {list(shape)}, {dtype}, got {got}"
        )
