"""What drafters that copy find in a text: against the same, counted by hand each time."""

from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from naive_speculate import ModelPair
from naive_speculate.speculate.draft.occurrences import EarlierOutputs, copies
from naive_speculate.speculate.draft.prompt_lookup import MAX_NGRAM, PromptLookupDrafter
from naive_speculate.speculate.draft.suffix import MIN_PROB, SuffixDrafter
from naive_speculate.testing import ToyModel

TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=40) | st.lists(st.integers(0, 7), min_size=1, max_size=60)
PAIR = ModelPair(ToyModel(8, 1))


@dataclass(eq=False)
class Row:
    token_ids: list[int]


def look_up(token_ids: list[int], limit: int) -> list[int]:
    """Prompt lookup by comparing everywhere."""
    for size in range(min(MAX_NGRAM, len(token_ids) - 1), 0, -1):
        ngram = token_ids[-size:]
        for start in range(len(token_ids) - size - 1, -1, -1):
            if token_ids[start : start + size] == ngram:
                return token_ids[start + size :][:limit]
    return []


def follow(text: list[int], length: int, limit: int) -> tuple[list[int], list[float]]:
    """The heaviest path after the last `length` tokens, by counting everywhere."""
    path: list[int] = []
    probs: list[float] = []
    prob = 1.0
    while len(path) < limit:
        stretch = [*text[len(text) - length :], *path]
        ends = [end for end in range(len(stretch), len(text)) if text[end - len(stretch) : end] == stretch]
        counts = Counter(text[end] for end in ends)
        most = max(counts.values(), default=0)
        prob *= most / max(1, len(ends))
        if not ends or prob < MIN_PROB:
            break
        path.append(next(text[end] for end in reversed(ends) if counts[text[end]] == most))
        probs.append(prob)
    return path, probs


def draft(text: list[int], limit: int, factor: float, depth: int) -> list[int]:
    """Suffix decoding by counting everywhere."""
    best, best_score = [], 0.0
    for length in range(1, min(depth, len(text)) + 1):
        path, probs = follow(text, length, min(limit, int(length * factor + 1e-6)))
        if path and sum(probs) >= best_score:
            best, best_score = path, sum(probs)
    return best


@given(text=TEXTS, limit=st.integers(1, 12), factor=st.sampled_from([0.5, 1.0, 2.5]), depth=st.integers(2, 9))
def test_drafters_that_copy_find_what_counting_everywhere_finds(text, limit, factor, depth):
    """In a text that grows token by token, from a prompt of any length."""
    row = Row(text[: len(text) // 3])
    lookup, suffix = (drafter(PAIR, 8, torch.device("cpu")) for drafter in (PromptLookupDrafter, SuffixDrafter))
    suffix.max_spec_factor = factor
    for drafter in (lookup, suffix):
        drafter.admit(row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("naive_speculate.speculate.draft.suffix.MAX_MATCH", depth)
        for token in text[len(text) // 3 :]:
            row.token_ids.append(token)
            for drafter, expected in (
                (lookup, look_up(row.token_ids, limit)),
                (suffix, draft(row.token_ids, limit, factor, depth)),
            ):
                drafter.rewind([row])
                found = drafter.copy(row, limit)
                assert found.token_ids == expected
                assert all(0 < prob <= 1 for prob in found.probs)
                assert not expected or row.token_ids[found.source :][: len(expected)] == expected


def test_earlier_outputs_are_bounded_and_the_oldest_goes_first():
    earlier = EarlierOutputs(2)
    for output in ([1, 2, 3], [4, 5, 6], [], [7, 8, 9]):
        earlier.add(output)
    assert len(earlier) == 2
    paths = [
        [copy.token_ids for copy in copies(earlier.matches(text, 5), lambda length: 5, MIN_PROB)]
        for text in ([1], [0, 4, 5], [7], [9])
    ]
    assert paths == [[], [[6]], [[8, 9]], []]


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "many"])
def test_a_number_of_earlier_outputs_that_cannot_be_is_refused(count):
    with pytest.raises(ValueError, match="earlier_outputs must be a whole number from 1, or None, got"):
        EarlierOutputs(count)


class Counted(list):
    """A list that counts how many of its items are read."""

    asked = 0

    def __getitem__(self, place):
        found = super().__getitem__(place)
        self.asked += len(found) if isinstance(place, slice) else 1
        return found


@pytest.mark.parametrize(("drafter", "most"), [(PromptLookupDrafter, 30), (SuffixDrafter, 4000)])
@pytest.mark.parametrize("text", [list(range(600)), [1] * 600, [1, 2, 3, 4, 5] * 120], ids=["new", "one", "five"])
def test_a_token_costs_no_more_the_longer_the_text_is(drafter, most, text):
    row, copier = Row(Counted(text[:500])), drafter(PAIR, 8, torch.device("cpu"))
    copier.admit(row)
    for token in text[500:]:
        row.token_ids.append(token)
        copier.rewind([row])
        copier.copy(row, 5)
    assert row.token_ids.asked <= most * len(text)
