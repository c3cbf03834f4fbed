"""Numbers on the CPU as NumPy has them.

A forward of the target leaves nothing else in the processor's caches, so that the first call of one of torch's functions after
it takes up to 50 µs, and one of NumPy's a third of that. What a step does on the CPU between two forwards is hence lists and
arrays; to make a tensor of an array costs little, the way back does not.
"""

from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]
Numbers = torch.Tensor | Array
"""What a forward gives: a tensor, or an array where something else than torch has computed it."""


def as_numpy(numbers: Numbers) -> Array:
    """The same memory of a CPU tensor; without `detach`, a call of torch's, where there is nothing to detach."""
    if not isinstance(numbers, torch.Tensor):
        return numbers
    return (numbers.detach() if numbers.requires_grad else numbers).numpy()


def as_tensor(numbers: Numbers) -> torch.Tensor:
    """The same memory of an array."""
    return numbers if isinstance(numbers, torch.Tensor) else torch.from_numpy(numbers)
