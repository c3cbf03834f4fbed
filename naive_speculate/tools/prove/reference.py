"""A local copy of the server's model, that the server's answers may be tested against."""

from collections import Counter
from functools import lru_cache

import numpy as np
import torch

from naive_speculate.infer.inferencer import eos_token_ids
from naive_speculate.models import load_pair
from naive_speculate.text import Vocabulary, num_shared
from naive_speculate.tools.differ.scores import Scores, gaps
from naive_speculate.tools.prove.plan import POSITIONS
from naive_speculate.tools.prove.server import Entries


class Reference:
    """Exact distributions of a local copy of the server's model after any tokens, in float32;
    `folder` as for `load_pair`. Raises `ValueError` if it cannot be loaded or has no tokenizer."""

    def __init__(self, folder: str) -> None:
        self.scores = Scores(load_pair(folder, dtype="float32"))
        if self.scores.pair.tokenizer is None:
            raise ValueError(f"reference={folder!r} has no tokenizer")
        self.vocabulary = Vocabulary(self.scores.pair.tokenizer)
        texts = [self.vocabulary.text_of(token) for token in range(self.scores.pair.vocab_size)]
        shared = Counter(texts)
        self.id_of = {text: token for token, text in enumerate(texts) if shared[text] == 1}
        self.texts = texts
        self.logits = lru_cache(maxsize=64)(self._logits)
        self.top = lru_cache(maxsize=None)(self._top)

    def _logits(self, prompt: str, token_ids: tuple[int, ...]) -> torch.Tensor:
        return self.scores.whole([*self.vocabulary.encode(prompt), *token_ids])[-1]

    def _top(
        self, prompt: str, tokens: tuple[str, ...], temperature: float, count: int
    ) -> Entries | None:
        """None if a text is not one token's."""
        ids = tuple(self.id_of.get(token, -1) for token in tokens)
        if -1 in ids:
            return None
        top = torch.log_softmax(self.logits(prompt, ids).double() / temperature, -1).topk(count)
        return tuple(
            (self.texts[i], value)
            for value, i in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        )

    def sample(self, prompt: str, temperature: float, count: int, seed: int) -> list[str]:
        """Texts of as many tokens as are tested, decoded plainly."""
        random, drawn = np.random.default_rng(seed), Counter[tuple[int, ...]]({(): count})
        ends = eos_token_ids(self.scores.pair.target)
        for _ in range(POSITIONS):
            longer: Counter[tuple[int, ...]] = Counter()
            for ids, times in drawn.items():
                if ids and ids[-1] in ends:
                    longer[ids] += times
                    continue
                probs = torch.softmax(self.logits(prompt, ids).double() / temperature, -1).numpy()
                for token, number in Counter(
                    random.choice(len(probs), times, p=probs / probs.sum()).tolist()
                ).items():
                    longer[(*ids, token)] += number
            drawn = longer
        tokenizer = self.scores.pair.tokenizer
        return [
            text
            for ids, times in drawn.items()
            for text in [tokenizer.decode(ids, skip_special_tokens=True)] * times
        ]

    def gaps(self, prompt: str, text: str) -> list[float]:
        """How much less probable each token of a text is than the most probable one there, in
        nats."""
        before, whole = self.vocabulary.encode(prompt), self.vocabulary.encode(prompt + text)
        start = num_shared(before, whole)
        if start < 1 or start == len(whole):
            return []
        return gaps(self.scores.whole(whole)[start - 1 : -1], whole[start:]).tolist()
