"""A trie of every suffix of texts, with counts of each sequence of tokens and of the tokens
after it.

Oliaro et al. 2024 (arXiv 2411.04975), section 3. A sequence that occurs once has no node: its
branch ends in a leaf, the position of that occurrence, until it occurs again. So text that never
repeats takes a few entries per token.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

MAX_DEPTH = 24  # the longest counted sequences, in tokens; vLLM's default

Place = tuple[Sequence[int], int]  # a text, and a position in it


class Node:
    """A sequence of tokens that has occurred more than once.

    Attributes:
        count: How often it occurs.
        num_followed: How often a token follows it; less than `count` where a text ends with it.
        last: Position of its last token at the latest occurrence.
        heaviest: The token that follows it most often, of equals the latest; nothing where
            `weight` is 0.
        weight: How often that token follows it.
        children: By next token: a node, or the place of a token that has followed it once.
    """

    __slots__ = ("children", "count", "heaviest", "last", "num_followed", "weight")

    def __init__(self, count: int, last: int) -> None:
        self.count, self.last = count, last
        self.num_followed, self.heaviest, self.weight = 0, -1, 0
        self.children: dict[int, Branch] = {}

    def weigh(self) -> None:
        """Find the heaviest child again, after children were removed."""
        self.heaviest, self.weight = -1, 0
        for token, child in self.children.items():
            if (weight := child.count if isinstance(child, Node) else 1) >= self.weight:
                self.heaviest, self.weight = token, weight


Branch = Node | Place


class Copy(NamedTuple):
    """Copied tokens."""

    token_ids: list[int]
    # an estimate, for each token, that the text continues with it; nothing is drawn from these
    probs: list[float]
    # position of the first one in the row's prompt and output; None if it is from elsewhere
    source: int | None

    @property
    def score(self) -> float:
        """The expected number of accepted tokens."""
        return sum(accumulate(self.probs, mul))


def chance(matched: int) -> float:
    """The chance that the next copied token is right after so many matching ones; a third after
    one. In 500 greedy answers of SmolLM2-135M-Instruct it was 0.47 after two, 0.69 after four,
    0.82 after eight and 0.94 after 15."""
    return 1 - 1 / max(matched, 1.5)


class SuffixTrie:
    """Counts of all sequences of up to `max_depth` tokens in texts. Not for several threads at
    once. `text`: the only text, so that a path may follow its latest occurrence where the trie
    ends; None for many. `max_depth`: the longest counted sequences."""

    def __init__(self, text: Sequence[int] | None = None, max_depth: int = MAX_DEPTH) -> None:
        self.root = Node(0, -1)
        self.max_depth = max_depth
        self._text = text

    def append(self, text: Sequence[int], position: int, matches: Sequence[Node]) -> list[Node]:
        """Count the sequences that end with the text's token at `position`.

        Args:
            text: A text whose tokens before that were counted.
            position: The token's.
            matches: The result for the token before; empty for a text's first.

        Returns:
            list: The nodes of the text's ends that have occurred before, of one token, two and
                so on, all shorter than `max_depth`.
        """
        token, here = text[position], (text, position)
        longer: list[Node] = []
        for depth, node in enumerate((self.root, *matches), start=1):
            node.num_followed += 1
            child = node.children.get(token)
            if child is None:
                node.children[token] = here
                count = 1
            else:
                if not isinstance(child, Node):
                    child = node.children[token] = self._grown(child, depth)
                child.count += 1
                child.last = position
                count = child.count
                if depth < self.max_depth:
                    longer.append(child)
            if count >= node.weight:
                node.heaviest, node.weight = token, count
        return longer

    def add(self, text: Sequence[int]) -> None:
        """Count a whole text."""
        matches: list[Node] = []
        for position in range(len(text)):
            matches = self.append(text, position, matches)

    def remove(self, text: Sequence[int]) -> None:
        """Remove a text that was added."""
        for start in range(len(text)):
            node = self.root
            for token in text[start : start + self.max_depth]:
                child = node.children[token]
                node.num_followed -= 1
                if not isinstance(child, Node) or child.count == 1:
                    del node.children[token]
                    if token == node.heaviest:
                        node.weigh()
                    break
                child.count -= 1
                if token == node.heaviest:
                    node.weigh()
                node = child

    def find(self, tokens: Sequence[int]) -> Branch | None:
        """The branch of a sequence of tokens; None where it never occurs."""
        branch: Branch = self.root
        for token in tokens:
            if isinstance(branch, Node):
                child = branch.children.get(token)
                if child is None:
                    return None
                branch = child
            else:
                text, position = branch
                if position + 1 == len(text) or text[position + 1] != token:
                    return None
                branch = (text, position + 1)
        return branch

    def follow(self, branch: Branch, limit: int, min_prob: float, matched: int) -> Copy:
        """Follow the heaviest branches, at most `limit` tokens and until the path's share falls
        below `min_prob`. `matched`: how many tokens led to the branch."""
        token_ids: list[int] = []
        probs: list[float] = []
        whole, end = 1.0, -1
        while len(token_ids) < limit:
            if isinstance(branch, Node) and branch.weight:
                token, share = branch.heaviest, branch.weight / branch.num_followed
                branch = branch.children[token]
            else:  # a place in a text; in the only text also where the trie is not deeper
                text, position = (
                    (self._text or (), branch.last) if isinstance(branch, Node) else branch
                )
                if position + 1 >= len(text):
                    break
                token, share = text[position + 1], 1.0
                branch = (text, position + 1)
            whole *= share
            if whole < min_prob:
                break
            end = branch.last if isinstance(branch, Node) else branch[1]
            probs.append(share * chance(matched + len(token_ids)))
            token_ids.append(token)
        return Copy(token_ids, probs, end + 1 - len(token_ids) if token_ids else None)

    def _grown(self, leaf: Place, depth: int) -> Node:
        """A node for a sequence that has occurred once so far."""
        text, position = leaf
        node = Node(1, position)
        if depth < self.max_depth and position + 1 < len(text):
            node.num_followed, node.heaviest, node.weight = 1, text[position + 1], 1
            node.children[text[position + 1]] = (text, position + 1)
        return node


class EarlierOutputs:
    """Outputs of earlier runs, for all runs of a decoder to draft from. Threads may share it.

    With it a seed repeats a run only after the same earlier runs, and drafts may show one
    caller's text to another. `max_outputs`: how many are kept; the oldest go first. Raises
    `ValueError` if that is not a positive whole number.
    """

    def __init__(self, max_outputs: int) -> None:
        if not isinstance(max_outputs, int) or isinstance(max_outputs, bool) or max_outputs < 1:
            raise ValueError(
                f"earlier_outputs must be a whole number from 1, or None, got {max_outputs!r:.80}"
            )
        self.max_outputs = max_outputs
        self._outputs: deque[list[int]] = deque()
        self._trie = SuffixTrie()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._outputs)

    def add(self, token_ids: Sequence[int]) -> None:
        """Keep an output, and drop the oldest where there are too many."""
        if not token_ids:
            return
        with self._lock:
            self._outputs.append(list(token_ids))
            self._trie.add(self._outputs[-1])
            if len(self._outputs) > self.max_outputs:
                self._trie.remove(self._outputs.popleft())

    def copies(
        self, text: Sequence[int], limits: Callable[[int], int], min_prob: float
    ) -> list[Copy]:
        """The continuations of a text's ends, shortest end first, as far as they occur in any
        output. `limits`: the most tokens of a copy, by the number of matched tokens; `min_prob`:
        see `SuffixTrie.follow`."""
        copies = []
        with self._lock:
            for length in range(1, min(len(text), self._trie.max_depth - 1) + 1):
                branch = self._trie.find(text[len(text) - length :])
                if branch is None:
                    break
                copies.append(
                    self._trie.follow(branch, limits(length), min_prob, length)._replace(
                        source=None
                    )
                )
        return copies
