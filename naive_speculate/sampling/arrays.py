"""Numbers on the CPU as NumPy has them."""

from typing import Any

import numpy as np
import torch


def as_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The same memory of a CPU tensor; without `detach`, a call of torch's, where there is nothing to detach."""
    return (tensor.detach() if tensor.requires_grad else tensor).numpy()
