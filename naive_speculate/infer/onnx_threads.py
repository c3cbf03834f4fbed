"""One pool of threads for every ONNX Runtime session of the process, of a size that leaves the machine usable.

ONNX Runtime's threads spin for a while after each operation, waiting for the next. With a pool a session, the draft model's
and the target model's threads would spin against each other; one pool for both avoids it. A thread that loses its core to
another process holds up all the others, so one core is left free where there are more than two.
"""

import math
import os
import threading
from pathlib import Path

import onnxruntime

_MAX_THREADS = 8  # more only wait for one another on the matrices of models that a CPU decodes at a readable speed

_lock = threading.Lock()
_has_shared_pool: bool | None = None


def available_cores() -> int:
    """Cores this process may use: its CPU affinity, and a container's quota where that is less."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _container_quota(Path("/sys/fs/cgroup/cpu.max"))
    return max(1, min(cores, quota or cores))


def num_threads() -> int:
    """How many threads compute: `NAIVE_SPECULATE_THREADS`, or all cores but one (both of two), at most eight.

    Raises:
        ValueError: If the environment variable is not a positive number.
    """
    wanted = os.environ.get("NAIVE_SPECULATE_THREADS")
    if wanted is not None:
        if not wanted.isdigit() or int(wanted) < 1:
            raise ValueError(f"NAIVE_SPECULATE_THREADS must be a positive number, got {wanted!r}")
        return int(wanted)
    cores = available_cores()
    return min(cores if cores <= 2 else cores - 1, _MAX_THREADS)


def session_options() -> onnxruntime.SessionOptions:
    """Options for a session that computes in the shared pool."""
    global _has_shared_pool
    options = onnxruntime.SessionOptions()
    with _lock:
        if _has_shared_pool is None:
            _has_shared_pool = _make_shared_pool()
    if _has_shared_pool:
        options.use_per_session_threads = False
    else:
        options.intra_op_num_threads = num_threads()
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def _make_shared_pool() -> bool:
    """Whether there is a shared pool now; there is none if other code used ONNX Runtime first, without one."""
    try:
        onnxruntime.set_global_thread_pool_sizes(num_threads(), 1)
    except (AttributeError, RuntimeError):
        return False
    return True


def _container_quota(path: Path) -> int | None:
    try:
        quota, period = path.read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else math.ceil(int(quota) / int(period))
