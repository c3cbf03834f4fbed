"""A way to the server that can be cut: what goes through breaks then, and nothing new comes through."""

import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class Relay:
    """Passes on what comes to `url`, in both directions; a context manager.

    Args:
        url: The server's address.
    """

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url).port
        self._last = b""
        self._speaks = threading.Event()
        self._speaks.set()
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._whole = True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break every connection, and whatever is tried from now on."""
        with self._lock:
            self._whole = False
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._open.clear()
        self._speaks.set()

    def hold_after(self, word: bytes) -> None:
        """Once the server has said something, it says no more, on any connection, until all are cut.

        No test is quick enough to cut a run by itself, and what a page has not read when its connection breaks is lost to it. A
        page that hears nothing for a while asks on another connection, which a busy machine gives it the time for.
        """
        self._last = word

    def mend(self, url: str = "") -> None:
        """Let new connections through again, to another server where one is named."""
        with self._lock:
            self._whole = True
            self._to = urlsplit(url).port if url else self._to

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                with self._lock:
                    if not self._whole:
                        near.close()
                        continue
                    far = socket.create_connection(("127.0.0.1", self._to))
                    self._open += [near, far]
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(far, near), kwargs={"said": True}, daemon=True).start()

    def _pass_on(self, near: socket.socket, far: socket.socket, *, said: bool = False) -> None:
        with suppress(OSError):
            while data := near.recv(65536):
                if said:
                    self._speaks.wait()
                if said and self._last and self._last in data:  # before it is heard: then a test may cut at once
                    self._last = b""
                    self._speaks.clear()
                far.sendall(data)
        for end in (near, far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
