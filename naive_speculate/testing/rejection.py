"""Proofs for a bare rejection sampler: a function from distributions and candidates to a rejected index and a token.

A step emits the accepted candidates and one more token. Continued with plain samples of the target to k + 1 tokens, its output
must have the target's joint distribution (Leviathan et al. 2023, arXiv 2211.17192, appendix A.1).
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch

from naive_speculate.goodness import Fit, g_test, samples_needed
from naive_speculate.testing.enumeration import Outputs, exact_outputs, largest_difference
from naive_speculate.testing.paths import ALMOST_ONE, Branches, Deviation, numbers
from naive_speculate.testing.result import Counterexample, Proof
from naive_speculate.testing.toys import ToyModel

Rejection = Callable[..., tuple[Any, Any]]
Tokens = tuple[int, ...]

SMALLEST_BIAS = 0.03
ERROR_RATE = 0.001
ENUMERATED = 1e-6  # largest difference that counts as equal: a sampler may compare its draws in float32
_RESOLUTION = 1e-10
_REPEATS = 16
_GRID = 16
_MAX_BREAKS = 64
_TOYS = ((3, 1, (3, 4), False), (3, 2, (1, 2), True), (5, 1, (7, 9), True))
"""Number of tokens, candidates, seeds of target and proposal, whether some tokens are impossible."""


@dataclass(frozen=True)
class Step:
    """Toy distributions for one step, dependent on the tokens before."""

    target: ToyModel
    proposal: ToyModel
    num_candidates: int

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self.target.vocab_size

    def __str__(self) -> str:
        seeds = f"seeds {self.target.seed} and {self.proposal.seed}"
        return f"toys of {self.vocab_size} tokens ({seeds}), {self.num_candidates} candidates"

    def p(self, tokens: Tokens) -> torch.Tensor:
        """The target's distribution after these tokens, float64, shape `[vocab_size]`."""
        return torch.softmax(self.target.logits(tokens), -1)

    def q(self, tokens: Tokens) -> torch.Tensor:
        """The proposal's."""
        return torch.softmax(self.proposal.logits(tokens), -1)

    def candidates(self) -> Outputs:
        """Probabilities of candidates."""
        return exact_outputs(self.q, self.num_candidates, frozenset())

    def expected(self, emitted: Tokens = ()) -> Outputs:
        """The target's distribution over k + 1 tokens that begin with these."""
        rest = exact_outputs(lambda more: self.p(emitted + more), self.num_candidates + 1 - len(emitted), frozenset())
        return {emitted + tokens: probability for tokens, probability in rest.items()}

    def inputs(self, candidates: Tokens, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Target distributions, proposal distributions and candidates, as the sampler takes them."""
        target = torch.stack([self.p(candidates[:index]) for index in range(self.num_candidates + 1)])
        proposal = torch.stack([self.q(candidates[:index]) for index in range(self.num_candidates)])
        return target.to(dtype), proposal.to(dtype), torch.tensor(candidates)

    def emitted(self, candidates: Tokens, found: Any) -> Tokens:
        """The tokens of a result. Raises `Deviation` if it is no result."""
        try:
            rejected_idx, token = (int(part) for part in found)
        except (TypeError, ValueError, RuntimeError):
            raise Deviation(f"it returns {found!r:.80} instead of (rejected_idx, resampled_token)") from None
        if not 0 <= rejected_idx <= self.num_candidates:
            raise Deviation(f"it returns rejected_idx {rejected_idx} for {self.num_candidates} candidates")
        if not 0 <= token < self.vocab_size:
            raise Deviation(f"it returns the token {token}, and there are {self.vocab_size}")
        return (*candidates[:rejected_idx], token)


def steps() -> Iterator[Step]:
    """The toys that a sampler is tested on."""
    for size, num_candidates, (target, proposal), zeros in _TOYS:
        yield Step(ToyModel(size, target, zeros=zeros), ToyModel(size, proposal, zeros=zeros, temper=1.5), num_candidates)


def takes_random(rejection: Rejection) -> bool:
    """Whether its draws can be passed in, as `random`, so that it can be enumerated."""
    try:
        return "random" in inspect.signature(rejection).parameters
    except (TypeError, ValueError):
        return False


def _call(rejection: Rejection, step: Step, candidates: Tokens, inputs: Any, **random: Any) -> Tokens:
    try:
        found = rejection(*(tensor.clone() for tensor in inputs), **random)
    except Deviation:
        raise
    except Exception as error:  # a foreign function may fail in any way
        raise Deviation(f"it fails: {type(error).__name__}: {error!s:.200}") from error
    return step.emitted(candidates, found)


# Enumeration


@dataclass
class _Tree:
    """All branches of a sampler's draws for one set of candidates."""

    rejection: Rejection
    step: Step
    candidates: Tokens
    num_paths: int = 0

    def __post_init__(self) -> None:
        self.inputs = self.step.inputs(self.candidates, torch.float64)

    def run(self, path: list[float]) -> tuple[list[list[float] | None], Tokens]:
        """The draws that it makes along a path, and the tokens that it emits."""
        source = Branches(path)
        emitted = _call(self.rejection, self.step, self.candidates, self.inputs, random=source)
        return source.asked, emitted

    def leaves(self, path: list[float], probability: float) -> Iterator[tuple[Tokens, float]]:
        """Emitted tokens and probabilities of all branches after a path."""
        asked, emitted = self.run(path)
        if len(asked) <= len(path):
            if any(self.run(path) != (asked, emitted) for _ in range(1 if path else _REPEATS)):
                raise Deviation("the same draws of random do not repeat the result: something draws from another source")
            self.num_paths += 1
            yield emitted, probability
        elif (weights := asked[len(path)]) is not None:
            for choice, weight in enumerate(weights):
                yield from self.leaves([*path, choice], probability * weight)
        else:
            ends = [*self._breaks(path), 1.0]
            for low, high in zip([0.0, *ends], ends, strict=False):
                yield from self.leaves([*path, (low + high) / 2], probability * (high - low))

    def _behaviour(self, path: list[float], draw: float) -> list[Any]:
        """What follows a uniform draw if all later draws are small, and if all are large."""
        return [self.run([*path, draw, *tail]) for tail in ([], [ALMOST_ONE] * 64)]

    def _breaks(self, path: list[float]) -> list[float]:
        """Where the result changes as the next uniform draw grows from 0 to 1, by bisection between the points of a grid."""
        grid = [index / _GRID for index in range(_GRID)] + [ALMOST_ONE]
        pending = [(low, high, self._behaviour(path, low), self._behaviour(path, high)) for low, high in pairwise(grid)]
        found: list[float] = []
        while pending:
            low, high, at_low, at_high = pending.pop()
            if at_low == at_high:
                continue
            if high - low < _RESOLUTION:
                found.append(high)
                if len(found) > _MAX_BREAKS:
                    raise Deviation(f"its result changes at more than {_MAX_BREAKS} values of one uniform draw")
                continue
            middle = (low + high) / 2
            at_middle = self._behaviour(path, middle)
            pending += [(low, middle, at_low, at_middle), (middle, high, at_middle, at_high)]
        return sorted(found)


def enumerate_rejection(rejection: Rejection, step: Step) -> tuple[Outputs, int]:
    """The exact distribution of k + 1 tokens, and the number of paths. `rejection`: takes `random`, an object with `uniform()`
    and `categorical(probs)`, besides its three tensors; `step`: the distributions. Raises `Deviation` if it draws elsewhere, or
    returns no result."""
    outputs: Outputs = {}
    num_paths = 0
    for candidates, probability in step.candidates().items():
        tree = _Tree(rejection, step, candidates)
        for emitted, weight in tree.leaves([], probability):
            for tokens, rest in step.expected(emitted).items():
                outputs[tokens] = outputs.get(tokens, 0.0) + weight * rest
        num_paths += tree.num_paths
    return outputs, num_paths


# Sampling


def sample_rejection(rejection: Rejection, step: Step, num_samples: int, seed: int) -> dict[Tokens, int]:
    """Counts of k + 1 tokens over this many calls, in float32, as engines compute; torch's global generator is seeded."""
    random = np.random.default_rng(seed)
    drafts = step.candidates()
    counts: dict[Tokens, int] = {}
    emitted_counts: dict[Tokens, int] = {}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for candidates, times in zip(drafts, random.multinomial(num_samples, _normal(drafts)), strict=True):
            inputs = step.inputs(candidates, torch.float32)
            for _ in range(times):
                emitted = _call(rejection, step, candidates, inputs)
                emitted_counts[emitted] = emitted_counts.get(emitted, 0) + 1
    for emitted, times in emitted_counts.items():
        rest = step.expected(emitted)
        for tokens, count in zip(rest, random.multinomial(times, _normal(rest)), strict=True):
            counts[tokens] = counts.get(tokens, 0) + int(count)
    return counts


def _normal(outputs: Outputs) -> list[float]:
    return [probability / math.fsum(outputs.values()) for probability in outputs.values()]


def _joint_fit(step: Step, counts: dict[Tokens, int]) -> Fit:
    """The G-test of k + 1 tokens."""
    expected = step.expected()
    cells = list(product(range(step.vocab_size), repeat=step.num_candidates + 1))
    return g_test([counts.get(cell, 0) for cell in cells], [expected.get(cell, 0.0) for cell in cells])


def _next(step: Step, outputs: Mapping[Tokens, float], after: Tokens) -> list[float]:
    """The weight of each token after these ones."""
    beginnings = [(*after, token) for token in range(step.vocab_size)]
    return [math.fsum(weight for tokens, weight in outputs.items() if tokens[: len(start)] == start) for start in beginnings]


def prove_rejection(rejection: Rejection, smallest_bias: float, error_rate: float, seed: int = 0) -> Proof:
    """The proof for a bare rejection sampler; see `prove_lossless`. Raises `ValueError`, naming the argument."""
    if not callable(rejection):
        raise ValueError(f"rejection must be a function, got {rejection!r:.80}")
    for name, value in (("smallest_bias", smallest_bias), ("error_rate", error_rate)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}")
    try:
        if takes_random(rejection):
            return _prove_by_enumeration(rejection)
        return _prove_by_samples(rejection, smallest_bias, error_rate, seed)
    except Deviation as deviation:
        shown = Counterexample(str(deviation), "; ".join(map(str, steps())), tuple(deviation.path))
        return Proof(False, math.nan, 0, shown, ENUMERATED)


def _prove_by_enumeration(rejection: Rejection) -> Proof:
    total, largest = 0, 0.0
    for step in steps():
        outputs, num_paths = enumerate_rejection(rejection, step)
        total, difference = total + num_paths, largest_difference(outputs, step.expected())
        largest = max(largest, difference)
        if not difference <= ENUMERATED:
            return Proof(False, difference, total, _counterexample(step, outputs, sampled=False), ENUMERATED)
    return Proof(True, largest, total, None, ENUMERATED)


def _prove_by_samples(rejection: Rejection, smallest_bias: float, error_rate: float, seed: int) -> Proof:
    cases = list(steps())
    fits: list[Fit] = []
    shown: Counterexample | None = None
    for index, step in enumerate(cases):
        degrees = step.vocab_size ** (step.num_candidates + 1) - 1
        num_samples = samples_needed(smallest_bias, degrees, error_rate / len(cases))
        counts = sample_rejection(rejection, step, num_samples, seed + index)
        fits.append(fit := _joint_fit(step, counts))
        if fit.p_value < error_rate / len(cases):  # Bonferroni's correction, which lets the first finding end the test
            shown = _counterexample(step, counts, sampled=True)
            shown = replace(shown, reason=f"{shown.reason}; {fit}")
            break
    total, largest = sum(fit.num_samples for fit in fits), max(fit.bias for fit in fits)
    return Proof(shown is None, largest, total, shown, smallest_bias, tuple(fits), error_rate)


def _counterexample(step: Step, outputs: Mapping[Tokens, float], sampled: bool) -> Counterexample:
    """The first next token's distribution that differs; of samples, the one that differs most significantly."""
    contexts = (c for length in range(step.num_candidates + 1) for c in product(range(step.vocab_size), repeat=length))
    following = {c: weights for c in contexts if sum(weights := _next(step, outputs, c))}
    shares = {c: [weight / sum(weights) for weight in weights] for c, weights in following.items()}
    if sampled:
        after = min(following, key=lambda c: g_test(following[c], step.p(c).tolist()).p_value)
    else:
        differences = {c: max(abs(a - b) for a, b in zip(shares[c], step.p(c).tolist(), strict=True)) for c in shares}
        after = next((c for c in shares if differences[c] > ENUMERATED), max(shares, key=differences.__getitem__))
    expected, found = step.p(after).tolist(), shares[after]
    where = f"after the tokens {list(after)}" if after else "at the first token"
    words = f"{where} the target's distribution is {numbers(expected)}, the sampler's is {numbers(found)}"
    return Counterexample(words, str(step), (), after, tuple(expected), tuple(found))
