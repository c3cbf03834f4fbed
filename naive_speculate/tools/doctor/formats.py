"""Recognises the engine and format of a text, in any encoding."""

import contextlib
import gzip
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace

from naive_speculate.tools.doctor import llamacpp, sglang, totals, vllm
from naive_speculate.tools.doctor.prometheus import read_prometheus
from naive_speculate.tools.doctor.reading import Reading
from naive_speculate.tools.doctor.suspects import experts

READERS: tuple[Callable[[str], Reading | None], ...] = (
    read_prometheus,
    vllm.read_log,
    vllm.read_v0_log,
    vllm.read_request,
    totals.read_summary,
    sglang.read_meta_info,
    sglang.read_log,
    sglang.read_gauges,
    llamacpp.read_steps,
    llamacpp.read_statistics,
    llamacpp.read_server_log,
    llamacpp.read_timings,
    llamacpp.read_example,
    llamacpp.read_mtp_bench,
    totals.read_counts,
    totals.read_benchmark,
)
"""Each reads its format from a text; None if there is none, a `ValueError` if the numbers are
impossible."""
KNOWN = (
    "vLLM's “SpecDecoding metrics” and “Speculative metrics” log lines, its request metrics, its"
    " benchmark's summary and its Prometheus text; SGLang's meta_info, its “Decode batch” log line,"
    " its benchmarks and its Prometheus text; llama.cpp's lines of each step, its “draft"
    " acceptance” and “statistics” log lines, its and mlx-vlm's timings, mtp-bench's lines,"
    " n_drafted and n_accept, and its Prometheus text; LMDeploy's log line and Prometheus text;"
    " TensorRT-LLM's Prometheus text, iterations, requests and benchmark; LM Studio's and"
    " tabbyAPI's responses"
)
# A terminal's control sequences, also as escaped in JSON.
_COLOURS = re.compile(r"(?:\x1b|\\u001b|\\x1b|\\033)\[[0-9;?]*[ -/]*[@-~]")
_MESSAGES = (
    "log",
    "MESSAGE",
    "message",
    "msg",
    "line",
)  # of Docker's, journald's and other records of a log
_FIGURES = {
    "timings",
    "usage",
    "stats",
    "metrics",
    "meta_info",
}  # what a record holds that is itself a report
_ZEROS: dict[tuple[bool, ...], str] = {  # which bytes of four are zero in mostly Latin text
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
}


def decoded(data: bytes) -> str:
    """A log's text: UTF-8, UTF-16 or UTF-32 of either byte order, with a byte-order mark or
    without, compressed by gzip or not. Raises `ValueError` if it is compressed and damaged."""
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise ValueError(
                "the text is compressed by gzip and damaged, or was not copied in full"
            ) from None
    encoding: str = json.detect_encoding(data)
    if encoding not in (
        "utf-16",
        "utf-32",
    ):  # these have marks; otherwise it looks at four bytes only
        sample = data[: min(4096, len(data) // 4 * 4)]
        zeros = tuple(
            sample[byte::4].count(0) * 8 > len(sample) for byte in range(4)
        )  # more than half of them
        encoding = _ZEROS.get(zeros, "utf-8")
    return data.decode(encoding, errors="replace")


def read(text: str) -> Reading:
    """The figures of an engine, from a log, a response or Prometheus text; other lines are
    ignored. Raises `ValueError` if no format is recognised, or the numbers are impossible.

    If a text has several formats, the most informative one is read: the first with rates per
    index, else the first.
    """
    text = re.sub(
        "\r\n?", "\n", text.replace("\ufeff", "")
    )  # progress bars end lines with \r, joined files have several marks
    text = "\n".join(map(_message, text.split("\n"))).replace(
        "\u00a0", " "
    )  # web pages have no-break spaces
    text = _COLOURS.sub("", text)
    found, refused = list[Reading](), list[ValueError]()
    for reader in READERS:
        try:
            found += [reading] if (reading := reader(text)) is not None else []
        except ValueError as error:  # another format of the text may be whole
            refused.append(error)
        except OverflowError:
            raise ValueError(
                "the text has a number that is larger than any count of tokens"
            ) from None
    if refused and not found:
        raise refused[0]
    if not found:
        what = (
            "is empty"
            if not text.strip()
            else f"has none of the supported formats, it begins {text.strip()[:40]!r}"
        )
        raise ValueError(f"the text {what}; supported: {KNOWN}")
    known = [
        (len(one.rates) > 1, one.accepted_per_step is not None, one.drafted_per_step is not None)
        for one in found
    ]
    best = found[known.index(max(known))]
    return replace(best, experts=experts(text))


def _message(line: str) -> str:
    """The message of a line that is a JSON record of a log; other lines unchanged."""
    if line.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if not record.keys() & _FIGURES:
                return next(
                    (
                        record[key].rstrip("\r\n")
                        for key in _MESSAGES
                        if isinstance(record.get(key), str)
                    ),
                    line,
                )
    return line
