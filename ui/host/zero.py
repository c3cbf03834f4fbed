"""ZeroGPU: each request runs in a forked process that has the GPU for the time it asked for.

The package `spaces` exists on such a Space only, and is imported only there.
"""

import math
import os
import re
from collections.abc import Callable, Iterator
from functools import wraps
from html import unescape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # this module is imported before torch, which `spaces` has to come before
    from naive_speculate.events import Event
    from naive_speculate.serving import Request
    from naive_speculate.serving.solo import Decode

SECONDS_TO_BEGIN = 10
TOKENS_PER_SECOND = 40
"""For a pair of a few billion parameters, with a margin: a run that exceeds the time it asked
for is cut off."""
MOST_SECONDS = 120


def zero_gpu() -> bool:
    """Whether this process serves a ZeroGPU Space."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def import_spaces_first() -> None:
    """Import the package that patches torch for ZeroGPU. Call this before torch is imported."""
    if zero_gpu():
        import spaces  # type: ignore[import-not-found, unused-ignore]  # noqa: F401


def duration(request: "Request", _flag: str = "") -> int:
    """GPU time that a request needs, in seconds."""
    if request.params.max_tokens is None:  # limited only by the model's context
        return MOST_SECONDS
    tokens = request.params.max_tokens * request.params.num_sequences
    return min(MOST_SECONDS, SECONDS_TO_BEGIN + math.ceil(tokens / TOKENS_PER_SECOND))


def on_zero_gpu(decode: "Decode") -> "Decode":
    """The same function, run by ZeroGPU. Its errors (no quota left, no GPU free) become
    `Unavailable`."""
    import gradio
    import spaces  # type: ignore[import-not-found, unused-ignore]

    from naive_speculate.serving import Unavailable

    wrap: Callable[..., Any] = spaces.GPU(duration=duration)
    wrapped: Decode = wrap(decode)

    @wraps(decode)
    def asked(request: "Request", flag: str) -> "Iterator[list[Event]]":
        try:
            yield from wrapped(request, flag)
        except gradio.Error as error:
            # the page shows it as plain text
            plain = unescape(re.sub(r"<[^>]*>", "", f"{error.title}: {error.message}"))
            raise Unavailable(" ".join(plain.split())) from error

    return asked
