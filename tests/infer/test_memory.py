"""Memory that goes back to the system."""

import re
from pathlib import Path

import torch

from naive_speculate.infer.memory import free_memory


def resident_code(library: str) -> int:
    """KiB of a library's code that are mapped in this process."""
    text = Path("/proc/self/smaps").read_text(encoding="utf-8")
    parts = re.findall(rf" r-xp [^\n]*{library}\n(.*?)VmFlags", text, re.DOTALL)
    return sum(int(size) for part in parts for size in re.findall(r"^Rss: +(\d+)", part, re.M))


def test_code_that_ran_once_is_unmapped_and_runs_again():
    numbers = torch.arange(64.0).view(8, 8)
    product, before = numbers @ numbers.softmax(-1), resident_code("libtorch_cpu.so")
    free_memory()
    assert resident_code("libtorch_cpu.so") < before / 2
    assert torch.equal(numbers @ numbers.softmax(-1), product)
