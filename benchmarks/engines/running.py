"""Runs an adapter as a process, and sends it requests."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.engines.environments import EngineError, environment
from benchmarks.engines.models import END
from benchmarks.engines.serve import Answer, Ask


class Running:
    """An adapter's process: `about` is its `Engine`, `ask` sends a request."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process, self._log = process, log
        self.about: dict[str, Any] = self._read()

    def ask(self, ask: Ask) -> Answer:
        """The answer, whose tokens end with the end token if the text ended: some engines leave
        it out, some go on. Raises `EngineError` if the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(ask)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # reading reports it
        answer = Answer(**self._read())
        ids = answer.token_ids[: ask.max_tokens]
        if END in ids:
            ids = ids[: ids.index(END) + 1]
        elif len(ids) < ask.max_tokens:
            ids = [*ids, END]
        return replace(answer, token_ids=ids)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            said = f"{self._log.stem} ended with status {self._process.wait()}"
            last = self._log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")
            raise EngineError(f"{said}: {last[2].strip():.160}" if last[2] else said)
        message: dict[str, Any] = json.loads(line)
        return message


@contextmanager
def running(script: Path, models: Path, work: Path) -> Iterator[Running]:
    """The adapter's process; what its engine prints goes to a file in `work`."""
    python = environment(script, work)
    log = work / f"{script.stem}.log"
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [str(python), str(script), str(models)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            encoding="utf-8",
        )
        try:
            yield Running(process, log)
        finally:
            process.kill()
            process.wait()
