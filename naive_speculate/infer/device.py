"""Optional packages, moving numbers to and from devices, and small sums there."""

import importlib.metadata
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from packaging.version import Version

Array = np.ndarray[Any, Any]  # an input or output of ONNX Runtime


def on_device(
    values: Sequence[Any], device: torch.device | None = None, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """A tensor from numbers, or nested lists of them, on the host.

    Unlike `torch.tensor(values, device="cuda")`, this does not wait for the GPU.
    """
    pinned = device is not None and device.type == "cuda"
    return torch.tensor(values, dtype=dtype, pin_memory=pinned).to(
        device or torch.device("cpu"), non_blocking=pinned
    )


def to_lists(*tensors: torch.Tensor) -> list[Any]:
    """Tensors of any shapes and types on one device as lists; waits for the device once."""
    copies = [
        tensor.to("cpu", non_blocking=tensor.is_cuda) for tensor in tensors
    ]  # into pinned memory
    if tensors[0].is_cuda:
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return [copy.tolist() for copy in copies]


def count_leading(accepted: torch.Tensor) -> torch.Tensor:
    """Number of True before the first False in each row, int64; `accepted` is bool of shape
    `[batch_size, k]`."""
    return accepted.cumprod(dim=-1).sum(dim=-1)


def inside(lengths: torch.Tensor, k: int) -> torch.Tensor:
    """Which of k indices are in each row's window, bool, shape `[batch_size, k]`; the rest is
    padding."""
    return torch.arange(k, device=lengths.device) < lengths[:, None]


def best(scores: torch.Tensor) -> torch.Tensor:
    """The first index of the greatest number of the last dimension, int64, shape `[...]`. NumPy
    needs a tenth of torch's time on the CPU."""
    if scores.is_cpu and scores.dtype == torch.float32:
        return torch.from_numpy(np.asarray(scores.detach().numpy().argmax(-1)))
    return scores.max(
        dim=-1
    ).indices  # the same ties; on the CPU argmax takes up to four times as long


def pick(table: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """`table[..., token_ids]`: one entry of the last axis at every index."""
    return table.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)


class Seconds(NamedTuple):
    """A step's times: its draft and verify phases, and all of it."""

    draft: float
    verify: float
    total: float


class Stopwatch:
    """Times a step's two phases without waiting for the device between them: on the CPU by the
    wall clock; on CUDA by events, read after the step's one wait.

    `now` is a time, or an event. Drafting begins at `drafting`, verification at `verifying`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.now: Callable[[], Any] = time.perf_counter
        if device.type == "cuda":
            self.now = self._event
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        self._began = time.perf_counter()
        self.drafting = self.verifying = self.now()

    def stop(self) -> Seconds:
        """The step is over, and its results were fetched."""
        draft, verify, end = self.drafting, self.verifying, self.now()
        if self._device.type != "cuda":
            return Seconds(verify - draft, end - verify, time.perf_counter() - self._began)
        end.synchronize()
        total = time.perf_counter() - self._began
        return Seconds(draft.elapsed_time(verify) / 1000, verify.elapsed_time(end) / 1000, total)

    def _event(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(
            torch.cuda.current_stream(self._device)
        )  # the device's, which need not be torch's current one
        return event


def is_installed(package: str, at_least: str) -> bool:
    """Whether a recent enough version of a package is installed; it is not imported."""
    try:
        return Version(importlib.metadata.version(package)) >= Version(at_least)
    except importlib.metadata.PackageNotFoundError:
        return False


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Set torch to one thread temporarily; with more, a step in ONNX Runtime takes several
    times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
