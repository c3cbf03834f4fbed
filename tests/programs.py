"""The project's programs, each run in a process of its own that is forked from one which has imported what they all need."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

PRELOADED = [
    "naive_speculate.__main__",
    "naive_speculate.models",
    "naive_speculate.terminal",
    "naive_speculate.infer.llama.onnx",
    "naive_speculate.testing.command",
]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(PRELOADED)


def run_program(
    module: str,
    arguments: Sequence[str],
    seconds: float = 300.0,
    folder: Path | None = None,
    stdout: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """What the `main` of a module prints, and its status, as if the module had been started from a shell.

    Args:
        module: Its name.
        arguments: Of the command line.
        seconds: How long it may take at most.
        folder: Where it is started; None for where this process is.
        stdout: Where its output goes, which is not read then.

    Raises:
        subprocess.TimeoutExpired: If it takes longer.
    """
    with tempfile.TemporaryDirectory() as prints:
        printed = [stdout or Path(prints) / "stdout", Path(prints) / "stderr"]
        where = str(folder or Path.cwd())
        process = _CONTEXT.Process(
            target=_main, args=(module, list(arguments), [str(path) for path in printed], where, dict(os.environ))
        )
        process.start()
        process.join(seconds)
        if process.is_alive():
            process.kill()
            raise subprocess.TimeoutExpired([module, *arguments], seconds)
        said = ["" if path == stdout else path.read_text(encoding="utf-8") for path in printed]
        return subprocess.CompletedProcess([module, *arguments], process.exitcode, *said)


def _main(module: str, arguments: list[str], printed: list[str], folder: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)  # the process that this one is forked from may be older than a change of it
    os.chdir(folder)
    for descriptor, path in enumerate(printed, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.argv = [module, *arguments]
    sys.exit(import_module(module).main())
