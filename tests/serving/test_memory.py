"""What a server's process keeps, and what it looks through."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_loaded_is_no_work_for_the_collector_and_later_garbage_is_found_however_much_that_is() -> None:
    code = """
import gc, runpy, sys, types, weakref
sys.modules["torch"] = sys.modules["numpy"] = types.SimpleNamespace(Tensor=None)  # they take seconds, and are not used here
settle_memory = runpy.run_path("naive_speculate/infer/memory.py")["settle_memory"]

class Run:
    pass

made = [[] for _ in range(200_000)]
loaded = len(gc.get_objects())
settle_memory()
few = len(gc.get_objects()) < loaded / 10
run = Run()
run.reader = run
gone = weakref.ref(run)
gc.collect(1)  # it is no longer young when its reader goes
del run
later = [[] for _ in range(120_000)]
print(few, gone() is None)
"""
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert (told.stdout, "leaked" in told.stderr) == ("True True\n", False)
