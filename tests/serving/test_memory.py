"""What a server's process keeps, and what it looks through."""

import subprocess
import sys


def test_what_is_loaded_is_no_work_for_the_collector_and_later_garbage_is_found_however_much_that_is() -> None:
    code = """
import gc, weakref
import naive_speculate.models
from naive_speculate.serving.memory import settle_memory

class Run:
    pass

made = [[] for _ in range(10**6)]
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
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (told.stdout, "leaked" in told.stderr) == ("True True\n", False)
