"""The project's programs, run by their `main` in this process: what they print, and their status.

What only a process of its own can show (signals, imports, all that a shell gets) is tested with
`subprocess`."""

import io
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.utils import logging


def run_program(
    module: str,
    arguments: Sequence[str],
    folder: Path | None = None,
    stdout: Path | None = None,
    stdin: bytes = b"",
    output: io.TextIOBase | None = None,
) -> subprocess.CompletedProcess[str]:
    """What the `main` of a module prints, and its status, as if the module had been started from
    a shell.

    Args:
        module: Its name.
        arguments: Of the command line.
        folder: Where it is started; None for where this process is. What it imports from there
            is forgotten afterwards.
        stdout: Where its output goes, which is not read then.
        stdin: What it reads.
        output: What it writes to instead, which stays open.
    """
    before, threads, verbosity = set(sys.modules), torch.get_num_threads(), logging.get_verbosity()
    interrupted = signal.getsignal(signal.SIGINT)
    said = io.StringIO()
    written = output or (stdout.open("w") if stdout else io.StringIO())
    try:
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(written), redirect_stderr(said):
            patch.setattr(sys, "argv", [module, *arguments])
            patch.setattr(sys, "path", [*sys.path])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
            patch.chdir(folder or Path.cwd())
            status = import_module(module).main() or 0
    except SystemExit as ended:
        status = ended.code or 0
    finally:
        signal.signal(signal.SIGINT, interrupted)
        torch.set_num_threads(threads)
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
        for name in set(sys.modules) - before:
            if folder is not None and Path(
                getattr(sys.modules[name], "__file__", None) or "/"
            ).is_relative_to(folder):
                del sys.modules[name]
    printed = written.getvalue() if isinstance(written, io.StringIO) else ""
    if output is None:
        written.close()
    return subprocess.CompletedProcess([module, *arguments], status, printed, said.getvalue())


def refusal(module: str, arguments: Sequence[str], **how: Any) -> str:
    """The one line with which a program refuses its input, with status 2; `how` as for
    `run_program`."""
    done = run_program(module, arguments, **how)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line
