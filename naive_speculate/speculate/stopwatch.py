"""Times the phases of a step without waiting for the device in between."""

import time

import torch


class Stopwatch:
    """Phases on the CPU by the wall clock; on CUDA by events in the stream, read after the step's one synchronisation.

    Args:
        device: Where the work runs.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._began = time.perf_counter()
        self._marks: list[tuple[str, float | torch.cuda.Event]] = []
        self._ended = self._began

    def start(self, phase: str) -> None:
        """Begin a phase; the one before it ends."""
        self._marks.append((phase, self._now()))

    def stop(self) -> None:
        """End the last phase; everything has been computed by now."""
        end = self._now()
        self._marks.append(("", end))
        if not isinstance(end, float):
            end.synchronize()
        self._ended = time.perf_counter()

    def seconds(self, phase: str) -> float:
        """How long a phase took."""
        for (name, begin), (_, end) in zip(self._marks, self._marks[1:], strict=False):
            if name == phase:
                if isinstance(begin, float) or isinstance(end, float):
                    return float(end) - float(begin)  # type: ignore[arg-type]
                return begin.elapsed_time(end) / 1000
        return 0.0

    def total_seconds(self) -> float:
        """From the watch's making to `stop`."""
        return self._ended - self._began

    def _now(self) -> "float | torch.cuda.Event":
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
