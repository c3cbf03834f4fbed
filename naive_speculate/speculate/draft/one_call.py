"""Draft windows that the draft model makes in one call, where nothing has to be looked at between their tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from naive_speculate.sampling.random_source import SeededRandom, num_noises
from naive_speculate.speculate.draft.proposal import Proposal
from naive_speculate.speculate.sequence import SequenceState


def draft_in_one_call(
    model: Any, query: torch.Tensor, places: Any, rows: Sequence[SequenceState], limits: Sequence[int], vocab_size: int
) -> Proposal | None:
    """The rows' windows; None, and nothing has changed, where they must be drawn token by token.

    Args:
        model: The draft model; one that can has `draft_window`.
        query: What it has not seen of the rows, int64, shape `[batch_size, num_query_tokens]`.
        places: The rows' places in its cache.
        rows, limits: As for `BatchDrafter.propose`.
        vocab_size: How many tokens may be drafted.
    """
    draft_window = getattr(type(model), "draft_window", None)  # not by way of a wrapper, which may change the logits
    greedy = rows[0].greedy
    if draft_window is None or any(
        row.window.adaptive or row.greedy != greedy or not row.pipeline.tempers_only for row in rows
    ):
        return None
    if not greedy and any(type(row.random) is not SeededRandom or not row.random.on_cpu for row in rows):
        return None
    k, race = max(limits), None
    states = [row.random.state() for row in rows if not greedy]  # type: ignore[attr-defined]
    if not greedy:
        race = _race(rows, limits, k, vocab_size)
    before = places.lengths
    found = draft_window(model, query, places, k, vocab_size, race, any(row.needs_probs for row in rows))
    if found is None or (found[1] is not None and bool(found[1][..., 0].isnan().any())):
        for place, length in zip(places.indices, before, strict=True):
            places.cache.keep(place, length)
        for row, state in zip(rows, states, strict=False):
            row.random.restore(state)  # type: ignore[attr-defined]
        return None
    token_ids, probs = found
    lengths = []
    for place, (row, limit, drafts) in enumerate(zip(rows, limits, token_ids.tolist(), strict=True)):
        ends = (count for count, token in enumerate(drafts[:limit], 1) if token in row.stop_token_ids)
        lengths.append(next(ends, limit))
        if not greedy and lengths[-1] < limit:  # what was not drafted was not drawn: a row's draws are those that it has alone
            row.random.restore(states[place])  # type: ignore[attr-defined]
            row.random.noise(lengths[-1], vocab_size)  # type: ignore[attr-defined]
    return Proposal(token_ids, probs, lengths)


def _race(rows: Sequence[SequenceState], limits: Sequence[int], k: int, vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    noise = np.ones((len(rows), k, num_noises(vocab_size)), np.float32)
    for place, (row, limit) in enumerate(zip(rows, limits, strict=True)):
        noise[place, :limit] = row.random.noise(limit, vocab_size)  # type: ignore[attr-defined]
    temperatures = torch.tensor([[row.params.temperature] for row in rows], dtype=torch.float32)
    return temperatures, torch.from_numpy(noise)
