"""What a server's process keeps, and what it looks through."""

import subprocess
import sys


def test_what_is_loaded_is_no_work_for_the_collector() -> None:
    code = (
        "import gc, naive_speculate.serving.memory as memory, naive_speculate.models; loaded = len(gc.get_objects()); "
        "memory.settle_memory(); print(len(gc.get_objects()) < loaded / 10)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (told.stdout, "leaked" in told.stderr) == ("True\n", False)


def test_what_becomes_garbage_afterwards_is_found_however_much_was_loaded() -> None:
    code = """
import gc, weakref
from naive_speculate.serving.memory import settle_memory

class Run:
    pass

loaded = [[] for _ in range(10**6)]
settle_memory()
run = Run()
run.reader = run
gone = weakref.ref(run)
gc.collect(1)  # it is no longer young when its reader goes
del run
made = [[] for _ in range(120_000)]
print(gone() is None)
"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout == "True\n"
