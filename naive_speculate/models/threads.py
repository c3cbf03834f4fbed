"""The number of threads.

A thread that loses its core to another process delays all others, many times per forward. So one
core is left free where there are more than two. Where other programs are busy, such as a browser
that shows the page, half the cores are better: on two cores and with Chromium, one thread
decoded 223 tokens per second, two threads 203; with no browser, 202 and 287.
"""

import math
import os
from pathlib import Path

import torch

THREADS_VARIABLE = "NAIVE_SPECULATE_THREADS"
# more threads only wait for each other at sizes that a CPU decodes at a readable speed
_MAX_THREADS = 8


def available_cores() -> int:
    """Cores of this process: its CPU affinity, or a container's quota if that is less."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    quota = _container_quota(Path("/sys/fs/cgroup/cpu.max"))
    return max(1, min(cores, quota or cores))


def num_threads() -> int:
    """The number of threads: the environment variable's, or all cores but one (both of two), at
    most eight. Raises `ValueError` if the environment variable is not a positive number."""
    setting = os.environ.get(THREADS_VARIABLE)
    if setting is not None:
        if not setting.isdigit() or int(setting) < 1:
            raise ValueError(f"{THREADS_VARIABLE} must be a positive number, got {setting!r}")
        return int(setting)
    cores = available_cores()
    return min(cores if cores <= 2 else cores - 1, _MAX_THREADS)


def share_cores() -> None:
    """Use half the cores from now on, unless the environment variable is set; call it before
    models are loaded."""
    os.environ.setdefault(THREADS_VARIABLE, str(max(1, available_cores() // 2)))


def _container_quota(path: Path) -> int | None:
    try:
        quota, period = path.read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else math.ceil(int(quota) / int(period))


def leave_cores_to(model: object) -> None:
    """Set torch to one thread in this process if ONNX Runtime computes the model.

    Torch's threads and its, which spin while they wait, compete; torch has little to compute.
    Only programs should call this, since it affects the whole process.
    """
    if getattr(model, "computes_beside_torch", False):
        torch.set_num_threads(1)
