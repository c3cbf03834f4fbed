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
