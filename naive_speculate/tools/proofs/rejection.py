"""Proofs for a bare rejection sampler: a function from distributions and candidates to a
rejected index and a token.

A step emits the accepted candidates and one more token. Continued with plain samples of the
target to k + 1 tokens, its output must have the target's joint distribution (Leviathan et al.
2023, arXiv 2211.17192, appendix A.1).
"""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import torch

from naive_speculate.tools.goodness import Array, Fit, g_test, samples_needed
from naive_speculate.tools.proofs.paths import ALMOST_ONE, Branches, Deviation, numbers
from naive_speculate.tools.proofs.result import Counterexample, Proof
from naive_speculate.tools.proofs.toys import ToyModel

Rejection = Callable[..., tuple[Any, Any]]
Tokens = tuple[int, ...]

SMALLEST_BIAS = 0.03
ERROR_RATE = 0.001
# largest difference that counts as equal: a sampler may compare its draws in float32
ENUMERATED = 1e-6
_RESOLUTION = 1e-10
_REPEATS = 16
_GRID = 16
_MAX_BREAKS = 64
_TOYS = ((3, 1, (3, 4), False), (3, 2, (1, 2), True), (5, 1, (7, 9), True))
"""Number of tokens, candidates, seeds of target and proposal, whether some tokens are
impossible."""


@dataclass(frozen=True)
class ToyStep:
    """One step of a sampler with toy distributions, which depend on the tokens before."""

    target: ToyModel
    proposal: ToyModel
    num_candidates: int

    def __str__(self) -> str:
        seeds = f"seeds {self.target.seed} and {self.proposal.seed}"
        return (
            f"toys of {self.target.vocab_size} tokens ({seeds}), {self.num_candidates} candidates"
        )

    def expected(self, emitted: Tokens = ()) -> Array:
        """The target's joint distribution over what continues these tokens to k + 1; an axis per
        token."""
        return _joint(self.target, self.num_candidates + 1 - len(emitted), emitted)

    def inputs(
        self, candidates: Tokens, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Target distributions, proposal distributions and candidates, as the sampler takes
        them."""
        beginnings = [candidates[:index] for index in range(self.num_candidates + 1)]
        target = torch.stack([_probs(self.target, tokens) for tokens in beginnings])
        proposal = torch.stack([_probs(self.proposal, tokens) for tokens in beginnings[:-1]])
        return target.to(dtype), proposal.to(dtype), torch.tensor(candidates)

    def emitted(
        self, rejection: Rejection, candidates: Tokens, inputs: Any, **random: Any
    ) -> Tokens:
        """Raises `Deviation` if the sampler fails, or returns no result."""
        try:
            result = rejection(*(tensor.clone() for tensor in inputs), **random)
        except Deviation:
            raise
        except Exception as error:  # a foreign function may fail in any way
            raise Deviation(f"it fails: {type(error).__name__}: {error!s:.200}") from error
        try:
            rejected_idx, token = (int(part) for part in result)
        except (TypeError, ValueError, RuntimeError):
            raise Deviation(
                f"it returns {result!r:.80} instead of (rejected_idx, resampled_token)"
            ) from None
        if not 0 <= rejected_idx <= self.num_candidates:
            raise Deviation(
                f"it returns rejected_idx {rejected_idx} for {self.num_candidates} candidates"
            )
        if not 0 <= token < self.target.vocab_size:
            raise Deviation(f"it returns the token {token}, and there are {self.target.vocab_size}")
        return (*candidates[:rejected_idx], token)


def _probs(model: ToyModel, tokens: Tokens) -> torch.Tensor:
    return torch.softmax(model.logits(tokens), -1)


def _joint(model: ToyModel, length: int, after: Tokens = ()) -> Array:
    """Of so many tokens after these ones; an axis per token."""
    joint = np.ones(())
    for _ in range(length):
        following = [
            _probs(model, (*after, *tokens)).tolist() for tokens in np.ndindex(joint.shape)
        ]
        joint = joint[..., None] * np.reshape(following, (*joint.shape, -1))
    return joint


def steps() -> Iterator[ToyStep]:
    """The toys that a sampler is tested on."""
    for size, num_candidates, (target, proposal), zeros in _TOYS:
        yield ToyStep(
            ToyModel(size, target, zeros=zeros),
            ToyModel(size, proposal, zeros=zeros, temper=1.5),
            num_candidates,
        )


class _Tree:
    def __init__(self, rejection: Rejection, step: ToyStep, candidates: Tokens) -> None:
        self._emitted = partial(
            step.emitted, rejection, candidates, step.inputs(candidates, torch.float64)
        )

    def run(self, path: list[float]) -> tuple[list[list[float] | None], Tokens]:
        source = Branches(path)
        emitted = self._emitted(random=source)
        return source.asked, emitted

    def leaves(self, path: list[float], probability: float) -> Iterator[tuple[Tokens, float]]:
        asked, emitted = self.run(path)
        if len(asked) <= len(path):
            if any(self.run(path) != (asked, emitted) for _ in range(1 if path else _REPEATS)):
                raise Deviation(
                    "the same draws of random do not repeat the result: something draws from"
                    " another source"
                )
            yield emitted, probability
        elif (weights := asked[len(path)]) is not None:
            for choice, weight in enumerate(weights):
                yield from self.leaves([*path, choice], probability * weight)
        else:
            draws = [*(index / _GRID for index in range(_GRID)), ALMOST_ONE]
            grid = [self._at(path, draw) for draw in draws]
            points = (self._breaks(path, low, high) for low, high in pairwise(grid))
            breaks = list(islice(chain.from_iterable(points), _MAX_BREAKS + 1))
            if len(breaks) > _MAX_BREAKS:
                raise Deviation(
                    f"its result changes at more than {_MAX_BREAKS} values of one uniform draw"
                )
            for low, high in pairwise([0.0, *breaks, 1.0]):
                yield from self.leaves([*path, (low + high) / 2], probability * (high - low))

    def _at(self, path: list[float], draw: float) -> tuple[float, list[Any]]:
        """A uniform draw, and what follows it if all later draws are small, and if all are
        large."""
        return draw, [self.run([*path, draw, *tail]) for tail in ([], [ALMOST_ONE] * 64)]

    def _breaks(
        self, path: list[float], low: tuple[float, Any], high: tuple[float, Any]
    ) -> Iterator[float]:
        """Where the result changes as the next uniform draw grows, by bisection."""
        if low[1] == high[1]:
            return
        if high[0] - low[0] < _RESOLUTION:
            yield high[0]
            return
        middle = self._at(path, (low[0] + high[0]) / 2)
        yield from self._breaks(path, low, middle)
        yield from self._breaks(path, middle, high)


def enumerate_rejection(rejection: Rejection, step: ToyStep) -> tuple[Array, int]:
    """The exact joint distribution of k + 1 tokens, and the number of paths, of a sampler that
    takes `random`. Raises `Deviation` if it draws elsewhere, or returns no result."""
    joint, num_paths = np.zeros_like(step.expected()), 0
    drafts = _joint(step.proposal, step.num_candidates)
    for candidates in zip(*np.nonzero(drafts), strict=True):
        tree = _Tree(rejection, step, tuple(map(int, candidates)))
        for emitted, weight in tree.leaves([], float(drafts[candidates])):
            joint[emitted] += weight * step.expected(emitted)
            num_paths += 1
    return joint, num_paths


def sample_rejection(rejection: Rejection, step: ToyStep, num_samples: int, seed: int) -> Array:
    """Counts of k + 1 tokens over this many calls, in float32, as engines compute."""
    random, joint = np.random.default_rng(seed), np.zeros_like(step.expected())

    def drawn(probs: Array, count: int) -> Any:
        return random.multinomial(count, probs.ravel() / probs.sum()).reshape(probs.shape)

    counts: Counter[Tokens] = Counter()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        proposals = drawn(_joint(step.proposal, step.num_candidates), num_samples)
        for candidates, times in np.ndenumerate(proposals):
            inputs = step.inputs(candidates, torch.float32)
            counts.update(step.emitted(rejection, candidates, inputs) for _ in range(times))
    for emitted, times in counts.items():
        joint[emitted] += drawn(step.expected(emitted), times)
    return joint


def prove_rejection(
    rejection: Rejection, smallest_bias: float, error_rate: float, seed: int = 0
) -> Proof:
    """See `prove_lossless`. Raises `ValueError`, naming the argument."""
    if not callable(rejection):
        raise ValueError(f"rejection must be a function, got {rejection!r:.80}")
    for name, value in (("smallest_bias", smallest_bias), ("error_rate", error_rate)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}")
    try:
        takes_random = "random" in inspect.signature(rejection).parameters
    except (TypeError, ValueError):
        takes_random = False
    try:
        if takes_random:  # its draws can be passed in
            return _prove_by_enumeration(rejection)
        return _prove_by_samples(rejection, smallest_bias, error_rate, seed)
    except Deviation as deviation:
        shown = Counterexample(str(deviation), "; ".join(map(str, steps())), tuple(deviation.path))
        return Proof(False, math.nan, 0, shown, ENUMERATED)


def _prove_by_enumeration(rejection: Rejection) -> Proof:
    total, largest = 0, 0.0
    for step in steps():
        joint, num_paths = enumerate_rejection(rejection, step)
        total, difference = total + num_paths, float(np.abs(joint - step.expected()).max())
        largest = max(largest, difference)
        if not difference <= ENUMERATED:
            shown = _counterexample(step, joint, sampled=False)
            return Proof(False, difference, total, shown, ENUMERATED)
    return Proof(True, largest, total, None, ENUMERATED)


def _prove_by_samples(
    rejection: Rejection, smallest_bias: float, error_rate: float, seed: int
) -> Proof:
    cases = list(steps())
    fits: list[Fit] = []
    shown: Counterexample | None = None
    for index, step in enumerate(cases):
        expected = step.expected()
        num_samples = samples_needed(smallest_bias, expected.size - 1, error_rate / len(cases))
        counts = sample_rejection(rejection, step, num_samples, seed + index)
        fits.append(fit := g_test(counts.ravel(), expected.ravel()))
        # Bonferroni's correction, which lets the first finding end the test
        if fit.p_value < error_rate / len(cases):
            shown = _counterexample(step, counts, sampled=True)
            shown = replace(shown, reason=f"{shown.reason}; {fit}")
            break
    total, largest = sum(fit.num_samples for fit in fits), max(fit.bias for fit in fits)
    return Proof(shown is None, largest, total, shown, smallest_bias, tuple(fits), error_rate)


def _counterexample(step: ToyStep, joint: Array, sampled: bool) -> Counterexample:
    """The first next token's distribution that differs; of samples, the most significantly."""
    every = chain.from_iterable(np.ndindex(joint.shape[:length]) for length in range(joint.ndim))
    contexts = (c for c in every if joint[c].sum())
    following = {c: joint[c].reshape(len(joint), -1).sum(axis=1) for c in contexts}
    targets = {c: np.array(_probs(step.target, c)) for c in following}
    if sampled:
        after = min(following, key=lambda c: g_test(following[c], targets[c]).p_value)
    else:
        differences = {
            c: np.abs(weights / weights.sum() - targets[c]).max()
            for c, weights in following.items()
        }
        after = next(
            (c for c in following if differences[c] > ENUMERATED),
            max(following, key=differences.__getitem__),
        )
    expected, actual = targets[after].tolist(), (following[after] / following[after].sum()).tolist()
    where = f"after the tokens {list(after)}" if after else "at the first token"
    words = f"{where} the target's distribution is {numbers(expected)}, "
    words += f"the sampler's is {numbers(actual)}"
    return Counterexample(words, str(step), (), after, tuple(expected), tuple(actual))
