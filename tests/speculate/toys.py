"""Toy language models, and a random source that walks every branch of the real decoder."""

import math
from collections.abc import Callable

import torch

from naive_speculate import Event, EventKind, ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import KVCache, KVState
from naive_speculate.speculate.request import Request

EOS = 0


class ToyModel:
    """A plain `LanguageModel` (the two members, no more) whose next-token distribution depends on the whole history.

    It keeps the tokens it has seen in the cache, as keys, so that wrong rollbacks show as wrong distributions.
    """

    def __init__(self, vocab_size: int, seed: int, zeros: bool = True, temper: float = 1.0) -> None:
        self.vocab_size = vocab_size
        self.seed = seed
        self.zeros = zeros
        self.temper = temper

    @property
    def eos_token_id(self) -> int:
        return EOS

    def logits(self, history: tuple[int, ...]) -> torch.Tensor:
        code = sum((token + 1) * 31**place for place, token in enumerate(history)) + 7919 * self.seed
        generator = torch.Generator().manual_seed(code % 2**62)
        logits = torch.randn(self.vocab_size, generator=generator, dtype=torch.float64) * self.temper
        if self.zeros:
            hit = torch.randint(self.vocab_size + 2, (1,), generator=generator).item()
            if hit < self.vocab_size:
                logits[hit] = -torch.inf
        return logits

    def forward(self, query_token_ids: torch.Tensor, kv_cache: KVCache) -> torch.Tensor:
        assert len(query_token_ids) == 1
        states = kv_cache.get_kv_states()
        past = [] if not states else states[0].keys.flatten().long().tolist()
        assert len(past) == kv_cache.get_num_tokens()
        new = query_token_ids[0].tolist()
        tokens = query_token_ids.double().view(1, 1, -1, 1)
        kv_cache.update([KVState(tokens, tokens)])
        rows = [self.logits((*past, *new[: place + 1])) for place in range(len(new))]
        return torch.stack(rows)[None]


class Branches:
    """A random source that takes a given path through its choices, and remembers what it was asked.

    A uniform draw has two branches, 0 and just under 1: the token is kept (if that is possible at all) or refused (if that
    is). How probable they are, the events tell afterwards.
    """

    def __init__(self, path: list[int]) -> None:
        self.path = path
        self.asked: list[list[float] | None] = []

    def _choice(self) -> int:
        place = len(self.asked) - 1
        return self.path[place] if place < len(self.path) else 0

    def uniform(self) -> float:
        self.asked.append(None)
        return (0.0, 1.0 - 2**-24)[self._choice()]

    def categorical(self, probs: torch.Tensor) -> torch.Tensor:
        possible = [token for token, p in enumerate(probs.tolist()) if p > 0]
        self.asked.append([probs[token].item() for token in possible])
        return torch.tensor(possible[self._choice()])


def enumerate_outputs(
    pair: ModelPair, prompt: list[int], params: SamplingParams, **options: object
) -> dict[tuple[int, ...], float]:
    """The real decoder's output distribution: every path through drafts, verdicts and resamples, with its probability."""
    decoder = SpeculativeDecoder(pair)
    outputs: dict[tuple[int, ...], float] = {}
    paths: list[list[int]] = [[]]
    while paths:
        path = paths.pop()
        source = Branches(path)
        run = decoder.prepare(Request(prompt, params, **options), random=lambda seed, index, source=source: source)  # type: ignore[arg-type, misc]
        batch = decoder.new_batch()
        batch.admit(run.rows)
        events: list[Event] = []
        while not run.over:
            events += run.tell(batch.step(run.rows))
        weights = _weights(source, events)
        taken = path + [0] * (len(source.asked) - len(path))
        for place in range(len(path), len(taken)):
            others = range(1, len(weights[place]))
            paths += [[*taken[:place], other] for other in others if weights[place][other] > 0]
        probability = math.prod(options[choice] for options, choice in zip(weights, taken, strict=True))
        tokens = tuple(run.rows[0].output_token_ids)
        outputs[tokens] = outputs.get(tokens, 0.0) + probability
    return outputs


def _weights(source: Branches, events: list[Event]) -> list[list[float]]:
    """Probabilities of each choice's branches. A uniform that no verdict looked at has one branch."""
    verdicts: list[float | None] = []
    for step in sorted({event.step for event in events if event.kind == EventKind.PROPOSED and event.step is not None}):
        judged = {e.index: e for e in events if e.step == step and e.kind in _JUDGED and e.accept_prob is not None}
        drafted = sum(1 for e in events if e.step == step and e.kind == EventKind.PROPOSED)
        verdicts += [judged[place].accept_prob if place in judged else None for place in range(drafted)]
    found = iter(verdicts)
    weights = []
    for asked in source.asked:
        if asked is not None:
            weights.append(asked)
            continue
        accept = next(found)
        weights.append([1.0] if accept is None else [accept, 1.0 - accept])
    return weights


_JUDGED = {EventKind.ACCEPTED, EventKind.REJECTED, EventKind.DISCARDED}


def exact_outputs(
    next_probs: Callable[[tuple[int, ...]], torch.Tensor], max_tokens: int, stops: frozenset[int] = frozenset({EOS})
) -> dict[tuple[int, ...], float]:
    """The distribution of plain decoding: `next_probs` gives the next token's probabilities after the generated ones."""
    outputs: dict[tuple[int, ...], float] = {}

    def walk(tokens: tuple[int, ...], probability: float) -> None:
        if len(tokens) == max_tokens or (tokens and tokens[-1] in stops):
            outputs[tokens] = outputs.get(tokens, 0.0) + probability
            return
        for token, p in enumerate(next_probs(tokens).tolist()):
            if p > 0:
                walk((*tokens, token), probability * p)

    walk((), 1.0)
    return outputs


def largest_difference(a: dict[tuple[int, ...], float], b: dict[tuple[int, ...], float]) -> float:
    """Largest difference of the two distributions at any output."""
    return max(abs(a.get(tokens, 0.0) - b.get(tokens, 0.0)) for tokens in a.keys() | b.keys())
