"""Times the phases of a step without waiting for the device between them."""

import time
from itertools import pairwise
from typing import Any, NamedTuple

import torch


class Seconds(NamedTuple):
    """A step's times: its draft and verify phases, and all of it."""

    draft: float
    verify: float
    total: float


class Stopwatch:
    """A step's two phases: on the CPU by the wall clock; on CUDA by events, read after the
    step's one wait."""

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
        times = (self._draft, self._verify, self._now())
        if self._device.type == "cuda":
            times[-1].synchronize()
            draft, verify = (begin.elapsed_time(end) / 1000 for begin, end in pairwise(times))
        else:
            draft, verify = (end - begin for begin, end in pairwise(times))
        return Seconds(draft, verify, time.perf_counter() - self._began)

    def _now(self) -> Any:
        """Seconds, or an event of CUDA."""
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(
            torch.cuda.current_stream(self._device)
        )  # the device's, which need not be torch's current one
        return event
