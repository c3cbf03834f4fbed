"""All randomness of a run: one small object per sequence."""

import math
import secrets
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

_LEAST = 1e-30


class RandomSource(Protocol):
    """The source of a sequence's draws. Tests pass in one that walks every branch."""

    def uniform(self) -> float:
        """A number from [0, 1)."""
        ...

    def categorical(self, probs: torch.Tensor) -> torch.Tensor:
        """An index drawn with these probabilities. `probs`: shape `[vocab_size]`, sums to 1. The
        result is int64 scalar on the device of `probs`."""
        ...


class SeededRandom:
    """Draws that depend only on the seed, the index of the sequence in its request, and the
    order of calls.

    Categorical draws are exponential races: argmax p_i / E_i with E_i ~ Exp(1). Unlike an
    inverse cumulative distribution, rounding noise in some p_i changes the outcome only where
    two runners nearly tie. On the CPU (`device`, of the probabilities) the noise comes from
    NumPy, and a race has two rounds, which gives the same distribution with far fewer random
    numbers: first the sums of blocks of √n neighbours, then the members of the winning block.
    """

    def __init__(self, seed: int, index: int = 0, device: torch.device | str = "cpu") -> None:
        # SFC64 is small and quick to copy: a server saves its state before every step.
        self._uniform = np.random.Generator(np.random.SFC64([seed, index, 0]))
        self._noise: np.random.Generator | None = None
        if torch.device(device).type == "cpu":
            self._noise = np.random.Generator(np.random.SFC64([seed, index, 1]))
        else:
            self._device, self._seed = device, (seed + index * 0x9E3779B97F4A7C15) % 2**63

    def uniform(self) -> float:
        """A number from [0, 1)."""
        return self._uniform.random()

    def categorical(self, probs: torch.Tensor) -> torch.Tensor:
        """An index drawn with these probabilities; see `RandomSource.categorical`."""
        if self._noise is None:
            noise = torch.empty_like(probs).exponential_(generator=self._generator)
            return (probs / noise.clamp_min_(_LEAST)).argmax()
        # a race of blocks, then one of the members of a block: fewer random numbers
        size = math.isqrt(len(probs))
        count = math.ceil(len(probs) / size)
        noise = torch.from_numpy(self._noise.standard_exponential(count + size)).clamp_min_(_LEAST)
        blocks = torch.nn.functional.pad(probs, (0, count * size - len(probs))).view(count, size)
        block = (blocks.sum(dim=1, dtype=torch.float64) / noise[:count]).argmax()
        return block * size + (blocks[block] / noise[count:]).argmax()

    @cached_property
    def _generator(self) -> torch.Generator:
        """Made at the first draw: a process that only checks requests may lack the device that
        decodes them."""
        return torch.Generator(self._device).manual_seed(self._seed)

    def state(self) -> Any:
        """The state of the draws, for `restore`."""
        noise = (
            self._generator.get_state() if self._noise is None else self._noise.bit_generator.state
        )
        return self._uniform.bit_generator.state, noise

    def restore(self, state: Any) -> None:
        """Repeat the draws since `state` was taken."""
        uniform, noise = state
        self._uniform.bit_generator.state = uniform
        if self._noise is None:
            self._generator.set_state(noise)
        else:
            self._noise.bit_generator.state = noise


def fresh_seed() -> int:
    """A seed for a request without one; small enough to be copied by hand."""
    return secrets.randbelow(2**32)
