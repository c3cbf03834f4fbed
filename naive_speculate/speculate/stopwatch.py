"""Times the phases of a step without waiting for the device between them."""

import time
from typing import NamedTuple

import torch


class Seconds(NamedTuple):
    """A step's times: its draft and verify phases, and all of it."""

    draft: float
    verify: float
    total: float


class Stopwatch:
    """A step's two phases: on the CPU by the wall clock; on CUDA by events, read after the step's one wait. `device`: where the
    work runs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        self._began = time.perf_counter()
        self._draft = self._verify = self._now()

    def draft(self) -> None:
        """Drafting begins."""
        self._draft = self._now()

    def verify(self) -> None:
        """Verification begins, drafting is over."""
        self._verify = self._now()

    def stop(self) -> Seconds:
        """The step is over, and its results were fetched."""
        end = self._now()
        if not isinstance(end, float):
            end.synchronize()
        total = time.perf_counter() - self._began
        return Seconds(_between(self._draft, self._verify), _between(self._verify, end), total)

    def _now(self) -> "float | torch.cuda.Event":
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))  # the device's, which need not be torch's current one
        return event


def _between(begin: "float | torch.cuda.Event", end: "float | torch.cuda.Event") -> float:
    if isinstance(begin, float) or isinstance(end, float):
        return float(end) - float(begin)  # type: ignore[arg-type]
    return begin.elapsed_time(end) / 1000
