"""Masks of guided decoding computed in separate processes, which the kernel ends if a grammar
takes too long.

The cost of a grammar cannot be seen in its text, and xgrammar cannot be interrupted. So one
process holds the tokenizer, and forks a child for every sequence; a child compiles its grammar
and fills masks on a budget of processor time.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from naive_speculate.sampling.guided import (
    GrammarCompiler,
    GrammarMask,
    GuidedDecodingParams,
    GuideTooCostly,
)

COMPILE_SHARE = (
    10  # compiling may take so many times a mask's limit; it delays only its own request
)
REFILL_SHARE = 0.01
"""Every mask adds this share of the limit to the time that its run may still use: 2.5 ms of 0.25
s. Most masks take 0.1 ms."""
WALL_SHARE = (
    10  # the wall-clock limit of a mask, as a multiple of its processor time, for a busy machine
)
START_SECONDS = 300  # for the process that forks the others
MORE_BYTES = 2**30  # memory that a child may use in addition to what it was forked with


class MasksApart:
    """Compiles grammars for one tokenizer, like `GrammarCompiler`, but in a process per
    sequence, with so many seconds of processor time for one mask at most (see
    `SpeculativeDecoder`). Raises `ValueError` if this system cannot fork."""

    def __init__(self, compiler: GrammarCompiler, seconds: float) -> None:
        if not hasattr(os, "fork"):
            raise ValueError(
                f"mask_seconds={seconds} needs a system that forks processes, such as Linux; leave"
                " it None here"
            )
        self._tokenizer = pickle.dumps((compiler.info.serialize_json(), compiler.vocab_size))
        self._seconds = seconds
        self._lock = threading.Lock()
        self._server: socket.socket | None = None

    def compile(self, params: GuidedDecodingParams) -> "MaskApart":
        """A fresh matcher for the grammar. Raises `ValueError` if it parses, but xgrammar cannot
        work with it, or not within its time and memory."""
        try:
            mask = MaskApart(self._child(), params.source, self._seconds)
        except OSError as error:
            raise ValueError(
                f"guided_decoding cannot be followed: no process can be started for it ({error})"
            ) from None
        if (complaint := mask.ask((params, self._seconds), COMPILE_SHARE)) is not None:
            raise ValueError(complaint)
        return mask

    def _child(self) -> Connection:
        """A connection to a new process; starts the server that forks it where none runs."""
        with self._lock:
            mine, its = socket.socketpair()
            with its:
                for server in (self._server, None):
                    if server is None:
                        server = self._server = _start_server(self._tokenizer)
                    with suppress(ConnectionError):
                        socket.send_fds(server, [b"x"], [its.fileno()])
                        break
            return Connection(mine.detach())


class MaskApart(GrammarMask):
    """A `GrammarMask` whose masks come from another process; raises `GuideTooCostly` once that
    process was ended."""

    def __init__(self, connection: Connection, source: tuple[str, str], seconds: float) -> None:
        self._connection, self._source, self._seconds = connection, source, seconds

    def forced_text(self, history: list[int]) -> str:
        return str(self.ask(("forced_text", history)))

    def _allowed(self, history: list[int]) -> torch.Tensor | None:
        words = self.ask(("_allowed", history))
        return None if words is None else torch.from_numpy(words)

    def ask(self, message: tuple[Any, Any], num_masks: int = 1) -> Any:
        """The other process's answer, which may take as long as so many masks."""
        with suppress(OSError, EOFError):
            self._connection.send(message)
            if self._connection.poll(WALL_SHARE * num_masks * self._seconds):
                return self._connection.recv()
        self._connection.close()
        raise GuideTooCostly(*self._source)


def _start_server(tokenizer: bytes) -> socket.socket:
    mine, its = socket.socketpair()
    with its:
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=its.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
            # Ctrl-C is for the process that it serves; it ends with that one
            start_new_session=True,
        )
    channel = Connection(os.dup(mine.fileno()))
    channel.send_bytes(tokenizer)
    started = channel.poll(
        START_SECONDS
    )  # its imports are no grammar's cost, however busy the machine is
    channel.close()
    if not started or not mine.recv(1):
        raise OSError("it did not start")
    return mine


def _serve() -> None:
    """Fork a child for every socket received, until the other side closes."""
    import xgrammar

    requests = socket.socket(fileno=0)
    channel = Connection(os.dup(0))
    info, vocab_size = pickle.loads(channel.recv_bytes())
    channel.close()
    compiler = GrammarCompiler(xgrammar.TokenizerInfo.deserialize_json(info), vocab_size)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # their exit status is not read
    requests.send(b"x")  # it has started
    while True:
        said, descriptors, *_ = socket.recv_fds(requests, 1, 1)
        if not said:
            return
        if os.fork() == 0:
            requests.close()
            with Connection(descriptors[0]) as connection, suppress(EOFError, OSError):
                _answer(connection, compiler)
            os._exit(0)
        os.close(descriptors[0])


def _answer(connection: Connection, compiler: GrammarCompiler) -> None:
    """Compile the grammar that is received first, then answer with masks. The kernel ends a
    process that takes too long."""
    _bound_memory()
    params, seconds = connection.recv()
    with _at_most(COMPILE_SHARE * seconds):
        try:
            mask, complaint = compiler.compile(params), None
            mask._allowed(
                []
            )  # the first mask often takes longest; here the decoder does not wait for it
        except ValueError as error:
            mask, complaint = None, str(error)
    connection.send(complaint)
    left = seconds
    while mask is not None:
        method, history = connection.recv()
        with _at_most(left) as used:
            found = getattr(mask, method)(history)
        left = min(
            seconds, left - used() + (REFILL_SHARE * seconds if method == "_allowed" else 0.0)
        )
        connection.send(found.numpy() if isinstance(found, torch.Tensor) else found)


@contextmanager
def _at_most(seconds: float) -> Iterator[Callable[[], float]]:
    """End this process where a block takes more processor time; yields a clock of the time used."""
    began = time.process_time()
    signal.setitimer(
        signal.ITIMER_PROF, max(seconds, 1e-3)
    )  # SIGPROF ends a process, also in the middle of C++
    yield lambda: time.process_time() - began
    signal.setitimer(signal.ITIMER_PROF, 0)


def _bound_memory() -> None:
    import resource  # not there on Windows

    with suppress(OSError, ValueError):  # there is no such file on macOS
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MORE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    _serve()
