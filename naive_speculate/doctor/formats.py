"""Which engine's words these are."""

from collections.abc import Callable

from naive_speculate.doctor import llamacpp, sglang, vllm
from naive_speculate.doctor.prometheus import read_prometheus
from naive_speculate.doctor.reading import Reading

READERS: tuple[Callable[[str], Reading | None], ...] = (
    read_prometheus,
    vllm.read_log,
    sglang.read_meta_info,
    sglang.read_log,
    llamacpp.read_statistics,
    llamacpp.read_server_log,
    llamacpp.read_timings,
    llamacpp.read_example,
)
"""Each says what a text has of its format, None for nothing of it; a `ValueError` if the numbers cannot be."""
KNOWN = (
    "vLLM's “SpecDecoding metrics” log line and its Prometheus text; SGLang's meta_info and its “Decode batch” log line; "
    "llama.cpp's “draft acceptance” and “statistics” log lines, timings, n_drafted and n_accept, and its Prometheus text"
)


def read(text: str) -> Reading:
    """What an engine says of itself.

    Where a text holds several formats the one that tells most is read: of those with rates of single places the first, else the
    first of all.

    Args:
        text: A log, a response, or Prometheus text; other lines may stand between.

    Raises:
        ValueError: If there is nothing in it that is known, or the numbers cannot be.
    """
    try:
        found = [reading for reader in READERS if (reading := reader(text)) is not None]
    except OverflowError:
        raise ValueError("the text has a number that is larger than any count of tokens") from None
    if not found:
        what = "is empty" if not text.strip() else f"has none of the formats that are known, it begins {text.strip()[:40]!r}"
        raise ValueError(f"the text {what}; known are {KNOWN}")
    return max(found, key=lambda reading: (len(reading.rates) > 1, reading.accepted_per_step is not None))
