"""The trie of suffixes, the index of n-grams and what is drafted from them: against the same,
counted by hand each time."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive_speculate.speculate.draft.prompt_lookup import MAX_NGRAM, NgramIndex
from naive_speculate.speculate.draft.suffix import MIN_PROB, SuffixDrafter, SuffixIndex
from naive_speculate.speculate.draft.suffix_trie import MAX_DEPTH, EarlierOutputs, Node, SuffixTrie

TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=40) | st.lists(
    st.integers(0, 7), min_size=1, max_size=60
)
DEPTHS = st.integers(2, 9)


def look_up(token_ids: list[int], limit: int) -> list[int]:
    """Prompt lookup by comparing everywhere."""
    for size in range(min(MAX_NGRAM, len(token_ids) - 1), 0, -1):
        ngram = token_ids[-size:]
        for start in range(len(token_ids) - size - 1, -1, -1):
            if token_ids[start : start + size] == ngram:
                return token_ids[start + size :][:limit]
    return []


def occurrences(stretch: list[int], text: list[int]) -> list[int]:
    """Where a stretch ends, whenever it occurs."""
    size = len(stretch)
    return [end - 1 for end in range(size, len(text) + 1) if text[end - size : end] == stretch]


def follow(text: list[int], length: int, limit: int, depth: int) -> tuple[list[int], list[float]]:
    """The heaviest path after the last `length` tokens, by counting everywhere, and how likely
    it is up to each of its tokens: by their shares, and less so after few matching tokens."""
    path: list[int] = []
    probs: list[float] = []
    prob, whole, begin = 1.0, 1.0, text[len(text) - length :]
    while len(path) < limit:
        share, matched = 1.0, length + len(path)
        places = occurrences([*begin, *path], text)
        if len(places) == 1 or length + len(path) >= depth:
            last = occurrences([*begin, *path][:depth], text)[-1] + max(
                0, length + len(path) - depth
            )
            if last + 1 == len(text):
                break
            path.append(text[last + 1])
        else:
            followers = [text[place + 1] for place in places if place + 1 < len(text)]
            counts = Counter(followers)
            most = max(counts.values(), default=0)
            share = most / max(1, len(followers))
            prob *= share
            if not most or prob < MIN_PROB:
                break
            path.append(next(token for token in reversed(followers) if counts[token] == most))
        whole *= share * (1 - 1 / max(matched, 1.5))
        probs.append(whole)
    return path, probs


def draft(text: list[int], limit: int, factor: float, depth: int) -> list[int]:
    """Suffix decoding by counting everywhere."""
    best, best_score = [], 0.0
    for length in range(1, min(depth, len(text) + 1)):
        if len(occurrences(text[len(text) - length :], text)) > 1:
            path, probs = follow(text, length, min(limit, int(length * factor + 1e-6)), depth)
            if path and sum(probs) >= best_score:
                best, best_score = path, sum(probs)
    return best


def stretches(
    trie: SuffixTrie, node: Node | None = None, begin: tuple[int, ...] = ()
) -> dict[tuple[int, ...], tuple[int, int]]:
    """How often each stretch occurs and is followed; a leaf's text is read on."""
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    for token, child in (node or trie.root).children.items():
        stretch = (*begin, token)
        if isinstance(child, Node):
            assert child.weight == max(
                (
                    below.count if isinstance(below, Node) else 1
                    for below in child.children.values()
                ),
                default=0,
            )
            found[stretch] = (child.count, child.num_followed)
            found |= stretches(trie, child, stretch)
        else:
            text, position = child
            assert text[position] == token
            for end in range(position, min(len(text), position + trie.max_depth - len(begin))):
                followed = end + 1 < len(text) and len(begin) + 1 + end - position < trie.max_depth
                found[(*begin, *text[position : end + 1])] = (1, int(followed))
    return found


def counted(texts: list[list[int]], depth: int) -> dict[tuple[int, ...], tuple[int, int]]:
    """The same, by counting."""
    counts, followed = Counter(), Counter()
    for text in texts:
        for start in range(len(text)):
            for end in range(start + 1, min(len(text), start + depth) + 1):
                counts[tuple(text[start:end])] += 1
                followed[tuple(text[start:end])] += end < len(text) and end - start < depth
    return {stretch: (count, followed[stretch]) for stretch, count in counts.items()}


@given(TEXTS, st.integers(1, 12))
def test_prompt_lookup_drafts_what_comparing_everywhere_finds(text, limit):
    grown = NgramIndex(row := [])
    for token in text:
        row.append(token)
        grown.extend(len(row))
        found = grown.look_up(limit)
        assert found.token_ids == look_up(row, limit)
        if found.source is not None:
            assert row[found.source : found.source + len(found.token_ids)] == found.token_ids


@given(st.lists(TEXTS, min_size=1, max_size=8), DEPTHS, st.data())
def test_a_text_that_is_taken_back_leaves_no_trace(texts, depth, data):
    trie, kept = SuffixTrie(max_depth=depth), []
    for text in texts:
        trie.add(text)
        kept.append(text)
        if data.draw(st.booleans()):
            trie.remove(kept.pop(data.draw(st.integers(0, len(kept) - 1))))
        assert stretches(trie) == counted(kept, depth)


@given(TEXTS, st.integers(1, 12), st.sampled_from([0.5, 1.0, 2.5]), DEPTHS)
def test_suffix_decoding_drafts_what_counting_everywhere_finds(text, limit, factor, depth):
    drafter = object.__new__(SuffixDrafter)
    drafter.max_spec_factor = factor
    index = SuffixIndex(row := [])
    index.trie = SuffixTrie(row, depth)
    for token in text:
        row.append(token)
        index.extend(len(row))
        found = drafter.copy(index, limit)
        assert found.token_ids == draft(row, limit, factor, depth)
        assert all(0 < prob <= 1 for prob in found.probs)
        if found.source is not None:
            assert row[found.source : found.source + len(found.token_ids)] == found.token_ids


@given(TEXTS, st.integers(1, 40))
def test_the_trie_counts_every_stretch_and_what_follows_it_by_chunks_of_any_size(text, size):
    whole, chunked = SuffixIndex(text), SuffixIndex(text)
    whole.extend(len(text))
    for end in range(size, len(text) + size, size):
        chunked.extend(min(end, len(text)))
    assert stretches(chunked.trie) == stretches(whole.trie) == counted([text], MAX_DEPTH)
    assert [node.count for node in chunked.matches] == [node.count for node in whole.matches]


def test_earlier_outputs_are_bounded_and_the_oldest_goes_first():
    earlier = EarlierOutputs(2)
    for output in ([1, 2, 3], [4, 5, 6], [], [7, 8, 9]):
        earlier.add(output)
    assert len(earlier) == 2
    assert earlier.copies([1], lambda length: 5, MIN_PROB) == []
    assert [path.token_ids for path in earlier.copies([0, 4, 5], lambda length: 5, MIN_PROB)] == [
        [6],
        [6],
    ]
    assert [path.token_ids for path in earlier.copies([7], lambda length: 5, MIN_PROB)] == [[8, 9]]


def test_a_copy_is_likelier_the_more_tokens_matched():
    earlier, index = EarlierOutputs(1), NgramIndex(text := [1, 2, 3, 4, 5, 1, 2])
    earlier.add(text[:5])
    index.extend(len(text))
    assert index.look_up(3).probs == pytest.approx([1 / 2, 2 / 3, 3 / 4])
    probs = [copy.probs for copy in earlier.copies(text, lambda length: 3, MIN_PROB)]
    assert probs == [pytest.approx(each) for each in ([1 / 3, 1 / 2, 2 / 3], [1 / 2, 2 / 3, 3 / 4])]


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "many"])
def test_a_number_of_earlier_outputs_that_cannot_be_is_refused(count):
    with pytest.raises(
        ValueError, match="earlier_outputs must be a whole number from 1, or None, got"
    ):
        EarlierOutputs(count)


class Counted(list):
    """A list that counts how many of its items are read."""

    asked = 0

    def __getitem__(self, place):
        found = super().__getitem__(place)
        self.asked += len(found) if isinstance(place, slice) else 1
        return found


@pytest.mark.parametrize("kind", [NgramIndex, SuffixIndex])
@pytest.mark.parametrize("text", [list(range(600)), [1] * 600, [1, 2, 3, 4, 5] * 120])
def test_a_token_costs_no_more_steps_than_the_trie_is_deep_and_any_text_is_read_in_one_go(
    kind, text
):
    index = kind(row := Counted())
    for token in text:
        row.append(token)
        index.extend(len(row))
        if kind is NgramIndex:
            index.look_up(5)
        else:
            assert len(index.matches) < MAX_DEPTH
    assert row.asked <= 20 * len(row)
    if kind is SuffixIndex and len(set(text)) == len(
        text
    ):  # text that repeats nothing leaves one entry a token and no node
        entries = index.trie.root.children.values()
        assert (index.matches, len(entries)) == ([], len(text))
        assert not any(isinstance(child, Node) for child in entries)
