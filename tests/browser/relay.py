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
        self._last: tuple[bytes, int] = (b"", 0)
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

    def cut_after(self, word: bytes, times: int) -> None:
        """The same once the server has said something so many times; no test is quick enough to do so by itself."""
        with self._lock:
            self._last = (word, times)

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
                far.sendall(data)
                if said:
                    self._hear(data)
        for end in (near, far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _hear(self, data: bytes) -> None:
        word, times = self._last
        if not times or word not in data:
            return
        self._last = (word, max(0, times - data.count(word)))
        if not self._last[1]:
            self.cut()
