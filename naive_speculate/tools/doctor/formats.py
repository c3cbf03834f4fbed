"""Recognises the engine and format of a text, in any encoding."""

import contextlib
import gzip
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace

from naive_speculate.tools.doctor import benchmarks, llamacpp, mlx, openvino, sglang, totals, vllm
from naive_speculate.tools.doctor.processes import marked, split, together
from naive_speculate.tools.doctor.prometheus import (
    PROMETHEUS,
    names_processes,
    read_prometheus,
    with_metrics,
)
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
    mlx.read_ollama,
    mlx.read_omlx,
    mlx.read_from_draft,
    openvino.read_print,
    openvino.read_perf_metrics,
    benchmarks.read_spec_bench,
    benchmarks.read_speculators,
    benchmarks.read_speed_bench,
    benchmarks.read_xinfer,
)
"""Each reads its format from a text; None if there is none, a `ValueError` if the numbers are
impossible."""
KNOWN = (
    "vLLM's “SpecDecoding metrics”, request metrics, benchmark, counters and get_metrics();"
    " SGLang's meta_info, “Decode batch” lines, benchmarks and gauges; llama.cpp's log, steps,"
    " statistics, timings, examples and Prometheus text; mlx-vlm's timings; mlx-lm's from_draft;"
    " Ollama's, oMLX's and tokenspeed's log lines; LMDeploy's log; LMDeploy's, Rapid-MLX's and"
    " tokenspeed's Prometheus text; TensorRT-LLM's reports; LM Studio's and tabbyAPI's responses;"
    " OpenVINO's perf metrics; Spec-Bench's answers; speculators' report; SPEED-Bench's table;"
    " xinfer's log"
)
# A terminal's control sequences, also as escaped in JSON.
_COLOURS = re.compile(r"(?:\x1b|\\u001b|\\x1b|\\033)\[[0-9;?]*[ -/]*[@-~]")
# of Docker's, journald's and other records of a log
_MESSAGES = ("log", "MESSAGE", "message", "msg", "line")
# what a record holds that is itself a report
_FIGURES = {"timings", "usage", "stats", "metrics", "meta_info"}
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
    # these have marks; otherwise it looks at four bytes only
    if encoding not in ("utf-16", "utf-32"):
        sample = data[: min(4096, len(data) // 4 * 4)]
        # more than half of them
        zeros = tuple(sample[byte::4].count(0) * 8 > len(sample) for byte in range(4))
        encoding = _ZEROS.get(zeros, "utf-8")
    return data.decode(encoding, errors="replace")


def read(text: str) -> Reading:
    """The figures of an engine, from a log, a response or Prometheus text; other lines are
    ignored. Raises `ValueError` if no format is recognised, or the numbers are impossible.

    If a text has several formats, the most informative one is read: the first with rates per
    index, else the first.
    """
    # progress bars end lines with \r, joined files have several marks
    text = re.sub("\r\n?", "\n", text.replace("\ufeff", ""))
    # web pages have no-break spaces
    text = "\n".join(map(_message, text.split("\n"))).replace("\u00a0", " ")
    text = llamacpp.with_points(with_metrics(_COLOURS.sub("", text)))
    lines = split(text)
    plain = "\n".join(line for _, line in lines)
    best = _of_processes(lines) or _best(plain)
    if best is None:
        what = f"has none of the supported formats, it begins {plain.strip()[:40]!r}"
        what = what if text.strip() else "is empty"
        raise ValueError(f"the text {what}; supported: {KNOWN}")
    return replace(best, experts=experts(text))


def _of_processes(lines: list[tuple[str, str]]) -> Reading | None:
    """None if fewer than two report figures, or the text is Prometheus text with start times, which
    separate scrapes and processes."""
    texts: dict[str, list[str]] = {}
    for name, line in lines:
        texts.setdefault(name, []).append(line)
    readings, left_out = dict[str, Reading](), list[str]()
    for name, own in texts.items() if len(texts) > 1 else ():
        try:
            reading = _best("\n".join(own))
        except ValueError as error:
            if name and "nothing was drafted" in str(error):
                left_out.append(f"{name} is left out: {error}.")
        else:
            readings |= {} if reading is None else {name or "without a name": reading}
    if not readings:
        return None
    best = max(readings.values(), key=_rank)
    form = best.engine, best.format
    readings = {k: one for k, one in readings.items() if (one.engine, one.format) == form}
    by_process = "\n".join(line for name, own in texts.items() for line in own)
    started = best.format in PROMETHEUS and names_processes(by_process)
    if started or len(readings) + len(left_out) < 2:
        return None
    whole = together(readings)
    if whole is None and (whole := _best(by_process)) is None:
        return None
    return replace(whole, processes=readings, unknown=(*whole.unknown, *left_out))


def _rank(reading: Reading) -> tuple[bool, bool, bool]:
    """How much a reading says."""
    return (
        len(reading.rates) > 1,
        reading.accepted_per_step is not None,
        reading.drafted_per_step is not None,
    )


def _best(text: str) -> Reading | None:
    """The first of the most informative readings. Raises `ValueError` if only impossible numbers
    are found."""
    readings, refused = list[Reading](), list[ValueError]()
    for reader in READERS:
        try:
            readings += [reading] if (reading := reader(text)) is not None else []
        except ValueError as error:  # another format of the text may be whole
            refused.append(error)
        except OverflowError:
            why = "the text has a number that is larger than any count of tokens"
            raise ValueError(why) from None
    if refused and not readings:
        raise refused[0]
    return max(readings, key=_rank, default=None)


def _message(line: str) -> str:
    """The message of a JSON record of a log; other lines unchanged."""
    if line.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if not record.keys() & _FIGURES:
                for said in map(record.get, _MESSAGES):
                    if isinstance(said, str):
                        return marked(record, said.rstrip("\r\n"))
    return line
