"""Lets the original naive-speculate run on a Python older than 3.14, which evaluates annotations
only where code reads them: here they stay text. It runs in that engine's own environment."""

import __future__

import sys
import typing
from importlib.machinery import SourceFileLoader
from typing import Any


def compiled(self: Any, data: Any, path: Any, *, _optimization: int = -1) -> Any:
    """The code of a file, as `SourceFileLoader.source_to_code` gives it."""
    flags = __future__.annotations.compiler_flag if "naive_speculate" in str(path) else 0
    return compile(data, path, "exec", flags, dont_inherit=True, optimize=_optimization)


if sys.version_info < (3, 14):
    SourceFileLoader.source_to_code = compiled  # type: ignore
    typing.override = lambda method: method  # type: ignore
