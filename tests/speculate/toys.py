"""Toy language models, and a random source that walks every branch of the real decoder."""

import math
from collections.abc import Callable

import pytest
import torch

from naive_speculate import Event, EventKind, ModelPair, SamplingParams, SpeculativeDecoder, VerifyStrategy
from naive_speculate.events import FinishReason
from naive_speculate.infer import KVCache, KVState
from naive_speculate.speculate.request import Request

EOS = 0


class ToyModel:
    """A plain `LanguageModel` (the two members, no more) whose next-token distribution depends on the whole history.

    It keeps the tokens it has seen in the cache, as keys, so that wrong rollbacks show as wrong distributions.
    """

    def __init__(
        self, vocab_size: int, seed: int, zeros: bool = True, temper: float = 1.0, dtype: torch.dtype = torch.float64
    ) -> None:
        self.vocab_size = vocab_size
        self.seed = seed
        self.zeros = zeros
        self.temper = temper
        self.dtype = dtype

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
        return torch.stack(rows)[None].to(self.dtype)


class Branches:
    """A random source that takes a given path through its choices, and remembers what it was asked.

    A path holds a number for every choice: what a uniform draw gives, or which of the possible tokens a categorical draw takes.
    Behind its end, a draft is kept if that is possible at all, and the first possible token is taken.
    """

    def __init__(self, path: list[float]) -> None:
        self.path = path
        self.asked: list[list[float] | None] = []

    def _choice(self) -> float:
        place = len(self.asked) - 1
        return self.path[place] if place < len(self.path) else 0

    def uniform(self) -> float:
        self.asked.append(None)
        return self._choice()

    def categorical(self, probs: torch.Tensor) -> torch.Tensor:
        assert probs.sum().item() == pytest.approx(1, abs=1e-5), "nothing may be drawn from what is no distribution"
        possible = [token for token, p in enumerate(probs.tolist()) if p > 0]
        self.asked.append([probs[token].item() for token in possible])
        return torch.tensor(possible[int(self._choice())])


class Path:
    """One run of the real decoder along a path.

    Attributes:
        taken: A number for every choice of the run; as far as the path went, the path.
        stated: For every choice the probabilities of its branches, or of a uniform draw the one that the events say it was
            compared with; None where no verdict looked at it.
        tokens: The generated tokens; -1 stands at the end of those of a run that ended in an error.
        drafted: How many tokens were drafted.
    """

    def __init__(self, decoder: SpeculativeDecoder, path: list[float], prompt: list[int], params: SamplingParams, **options):
        source = Branches(path)
        run, batch = decoder.prepare(Request(prompt, params, **options), random=lambda seed, index: source), decoder.new_batch()
        batch.admit(run.rows)
        self.stated: list[list[float] | float | None] = []
        self.drafted = 0
        while not run.over:
            began = len(source.asked)
            events = run.tell(batch.step(run.rows))
            self.taken = (path + [0] * len(source.asked))[: len(source.asked)]
            self._read_step(source.asked[began:], self.taken[began:], events, options.get("verify_strategy"))
        (row,) = run.rows
        self.tokens = (*row.output_token_ids, *((-1,) if row.finish_reason == FinishReason.ERROR else ()))

    def _read_step(self, asked, taken, events: list[Event], strategy) -> None:
        judged = {e.index: e.accept_prob for e in events if e.kind in _JUDGED and e.accept_prob is not None}
        uniforms = [number for number, branches in zip(taken, asked, strict=True) if branches is None]
        verdicts = iter([judged.get(place) for place in range(len(uniforms))])
        self.stated += [next(verdicts) if branches is None else branches for branches in asked]
        self.drafted += sum(e.kind == EventKind.PROPOSED for e in events)
        step = next((e for e in events if e.kind == EventKind.STEP), None)
        if step is None or not uniforms:
            return
        passed = [place in judged and u < judged[place] for place, u in enumerate(uniforms)] + [False]
        kept = passed.index(False)
        if strategy == VerifyStrategy.BLOCK_VERIFICATION:
            kept = max((place + 1 for place, kept in enumerate(passed) if kept), default=0)
        assert step.num_accepted == kept, f"{uniforms} were compared with something else than {judged}"

    @property
    def probability(self) -> float:
        """The probability of the run's every choice."""
        weights = [
            1.0
            if stated is None
            else stated[int(number)]
            if isinstance(stated, list)
            else stated
            if number < stated
            else 1 - stated
            for stated, number in zip(self.stated, self.taken, strict=True)
        ]
        return math.prod(weights)

    def at_the_edge(self) -> list[float]:
        """The same choices, with uniform draws that are only just small enough for their drafts to be kept."""
        return [
            math.nextafter(stated, 0) if isinstance(stated, float) and number < stated else number
            for stated, number in zip(self.stated, self.taken, strict=True)
        ]


def enumerate_outputs(
    pair: ModelPair, prompt: list[int], params: SamplingParams, **options: object
) -> dict[tuple[int, ...], float]:
    """The real decoder's output distribution: every path through drafts, verdicts and resamples, with its probability.

    The acceptance probabilities that its events state are not taken on trust: every uniform draw is made the largest number
    below the stated one, and that number itself, and the draft must be kept and refused.
    """
    decoder = SpeculativeDecoder(pair)
    outputs: dict[tuple[int, ...], float] = {}
    paths: list[list[float]] = [[]]
    drafted = 0
    while paths:
        path = paths.pop()
        run = Path(decoder, path, prompt, params, **options)
        edge = run.at_the_edge()
        if edge != run.taken:
            again = Path(decoder, edge, prompt, params, **options)
            assert (again.tokens, again.stated) == (run.tokens, run.stated)
        for place in range(len(path), len(edge)):
            stated = run.stated[place]
            if isinstance(stated, list):
                paths += [[*edge[:place], other] for other in range(1, len(stated))]
            elif stated is not None and 0 < stated < 1:
                paths.append([*edge[:place], stated])
        outputs[run.tokens] = outputs.get(run.tokens, 0.0) + run.probability
        drafted += run.drafted
    assert drafted > 0 or options.get("num_draft_tokens") == 0, "nothing was drafted, which proves nothing"
    return outputs


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
