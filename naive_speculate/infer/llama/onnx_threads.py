"""One thread pool for all ONNX Runtime sessions of the process.

ONNX Runtime's threads spin after each operation, waiting for the next. With a pool per session, the threads of draft and target
would compete.
"""

import threading

import onnxruntime

from naive_speculate.infer.threads import num_threads

_lock = threading.Lock()
_has_shared_pool: bool | None = None


def session_options() -> onnxruntime.SessionOptions:
    """Options for a session in the shared pool."""
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
    """Whether there is a shared pool now; not if other code used ONNX Runtime before without one."""
    try:
        onnxruntime.set_global_thread_pool_sizes(num_threads(), 1)
    except Exception:  # ONNX Runtime's errors have no common base class
        return False
    return True
