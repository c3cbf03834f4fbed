"""Where the end of a text occurs elsewhere, and what most often followed there.

Oliaro et al. 2024 (arXiv 2411.04975), section 3. They count what follows in a trie of all suffixes. Here the latest occurrences
of the last token are compared, which gives the same counts and takes one entry per token.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import accumulate, islice
from operator import mul
from typing import NamedTuple

# the most occurrences of the last token that are compared, and the most matches of one length that are counted; the latest
_COMPARED, _COUNTED = 1000, 64

Place = tuple[list[int], int]  # a text, and a position in it


class Copy(NamedTuple):
    """Copied tokens."""

    token_ids: list[int]
    probs: list[float]  # the estimate, for each token, that the text continues with it; nothing is drawn from these
    source: int | None  # position of the first one in the row's prompt and output; None if it is from elsewhere

    @property
    def score(self) -> float:
        """The expected number of accepted tokens."""
        return sum(accumulate(self.probs, mul))


NOTHING = Copy([], [], None)


class Occurrences:
    """The latest places after each token of texts, which grow at their end. `num_tokens`: how many tokens have been added."""

    def __init__(self) -> None:
        self.num_tokens = 0
        self._after: dict[int, deque[Place]] = {}

    def add(self, text: list[int], start: int = 0) -> None:
        """Add a text's tokens from a position on."""
        for position in range(start, len(text)):
            self._after.setdefault(text[position], deque(maxlen=_COMPARED)).append((text, position + 1))
        self.num_tokens += len(text) - start

    def remove_oldest(self, text: list[int]) -> None:
        """Remove the text that was added first."""
        for token in set(text):
            places = self._after[token]
            while places and places[0][0] is text:
                places.popleft()
        self.num_tokens -= len(text)

    def matches(self, text: Sequence[int], longest: int, enough: int = _COUNTED) -> list[tuple[int, Place]]:
        """Places that have a token, and the number of tokens before each that also end the given text, at most `longest`.

        The latest comes first; after `enough` matches of `longest` tokens, older ones are left out.
        """
        found = []
        for other, position in reversed(self._after.get(text[-1], ())):
            if position == len(other):  # nothing follows yet
                continue
            length, most = 1, min(longest, position, len(text))
            while length < most and other[position - 1 - length] == text[-1 - length]:
                length += 1
            found.append((length, (other, position)))
            enough -= length == longest
            if not enough:
                break
        return found


def copies(matches: Sequence[tuple[int, Place]], most: Callable[[int], int], min_prob: float) -> list[Copy]:
    """What most often followed matches of each length, longest first, as far as a path's probability is at least `min_prob`.
    `most`: the most tokens of a copy, by the number of matching tokens."""
    found = []
    for length in sorted({length for length, _ in matches}, reverse=True):
        places = islice((place for longer, place in matches if longer >= length), _COUNTED)
        found.append(_follow(list(places), most(length), min_prob))
    return found


def _follow(places: list[Place], limit: int, min_prob: float) -> Copy:
    token_ids: list[int] = []
    probs: list[float] = []
    path_prob, source = 1.0, None
    for offset in range(limit):
        places = [(text, start) for text, start in places if start + offset < len(text)]
        followers = Counter(text[start + offset] for text, start in places)
        if not followers:
            break
        token, count = followers.most_common(1)[0]  # of equals the latest
        path_prob *= count / len(places)
        if path_prob < min_prob:
            break
        token_ids.append(token)
        probs.append(count / len(places))
        places = [(text, start) for text, start in places if text[start + offset] == token]
        source = places[0][1]
    return Copy(token_ids, probs, source)


class EarlierOutputs:
    """Outputs of earlier runs, for all runs of a decoder to draft from. Threads may share it.

    With it a seed repeats a run only after the same earlier runs, and drafts may show one caller's text to another.
    `max_outputs`: how many are kept; the oldest go first. Raises `ValueError` if that is not a positive whole number.
    """

    def __init__(self, max_outputs: int) -> None:
        if not isinstance(max_outputs, int) or isinstance(max_outputs, bool) or max_outputs < 1:
            raise ValueError(f"earlier_outputs must be a whole number from 1, or None, got {max_outputs!r:.80}")
        self.max_outputs = max_outputs
        self._outputs: deque[list[int]] = deque()
        self._occurrences = Occurrences()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._outputs)

    def add(self, token_ids: Sequence[int]) -> None:
        """Keep an output, and drop the oldest where there are too many."""
        if not token_ids:
            return
        with self._lock:
            self._outputs.append(list(token_ids))
            self._occurrences.add(self._outputs[-1])
            if len(self._outputs) > self.max_outputs:
                self._occurrences.remove_oldest(self._outputs.popleft())

    def matches(self, text: Sequence[int], longest: int) -> list[tuple[int, Place]]:
        """See `Occurrences.matches`."""
        with self._lock:
            return self._occurrences.matches(text, longest)
