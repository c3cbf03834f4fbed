#!/usr/bin/env bash
# Guess: with TRITON_INTERPRET=1 a kernel computes what it computes on a GPU, or says what is
#   missing.
# So it is: functions of libdevice, such as log1p, return None in the interpreter, without an error;
#   the kernel fails later, at the first use of the value, with an error about 'NoneType'.
#   Functions of triton.language, such as log, work. So vLLM 0.33's rejection sampler, which calls
#   log1p, does not run there as it is.
# Versions: triton 3.9.0, torch 2.13.0 (CPU), numpy 2.4.6; 2026-11-28.
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  triton==3.9.0 torch==2.13.0 numpy==2.4.6 || exit 2
cat > kernel.py <<'PY'
import math
import sys
from importlib.metadata import version

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

seen = []


@triton.jit
def by_language(x, y):
    tl.store(y, tl.log(1 + tl.load(x)))


@triton.jit
def by_libdevice(x, y):
    value = libdevice.log1p(tl.load(x))
    seen.append(value)
    tl.store(y, value + 0.0)


print("triton", version("triton"), "torch", version("torch"))
x, y = torch.ones(1), torch.zeros(1)
by_language[(1,)](x, y)
right = math.isclose(float(y), math.log(2), rel_tol=1e-5)
print("triton.language.log(1 + x):", float(y))
said = "no error"
try:
    by_libdevice[(1,)](x, y)
except Exception as error:
    said = f"{type(error).__name__}: {error}"
print("libdevice.log1p(x) returns", seen[0], "and the kernel ends with", said)
as_described = right and seen == [None] and "NoneType" in said
print("as described: None, and no word about log1p" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
TRITON_INTERPRET=1 venv/bin/python kernel.py
