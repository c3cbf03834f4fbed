"""vLLM's log: the line "SpecDecoding metrics", written every few seconds of what was decoded since the one before.

`vllm/v1/spec_decode/metrics.py`, `SpecDecodingLogging.log`, at ee4ceaae5953; earlier lines have fewer fields, in another order.
"""

import re

from naive_speculate.doctor.reading import ROUNDING, Reading, mean, rates_in, weighted_rates

SOURCE = "vllm/v1/spec_decode/metrics.py, SpecDecodingLogging.log (ee4ceaae5953)"
_LINE = re.compile(r"SpecDecoding metrics: (.*)")
_RATES = re.compile(r"Per-position acceptance rate: \[?([\d., ]+)")
_RUNNING = re.compile(r"Running: (\d+) reqs")  # vllm/v1/metrics/loggers.py, the line that is written beside it
_TOO_FEW = "vLLM's line does not count the steps"


def read_log(text: str) -> Reading | None:
    """All lines together, each with the steps it stands for; None where there is none."""
    parts: list[tuple[float, tuple[float, ...]]] = []
    drafted = accepted = 0
    counted, steps = True, 0.0
    for line in _LINE.findall(text):
        of_line, of_them = _count("Drafted", line), _count("Accepted", line)
        if of_line is None or of_them is None:
            continue
        drafted, accepted = drafted + of_line, accepted + of_them
        found = _RATES.search(line)
        rates = rates_in(found[1]) if found else ()
        of_steps = _steps(of_line, of_them, rates, line) if of_line else 0.0
        counted = counted and of_steps is not None
        steps += of_steps or 0.0
        parts.append((of_steps or 0.0, rates))
    if not parts:
        return None
    running = mean(int(number) for number in _RUNNING.findall(text) if int(number))
    return Reading.counted(
        accepted,
        drafted,
        steps if counted else None,
        engine="vLLM",
        format="log line “SpecDecoding metrics”",
        source=SOURCE,
        rates=weighted_rates(parts) if counted else (),
        requests_running=running,
        derived=(f"{_TOO_FEW}: they follow from Drafted, Accepted and the rates.",) if counted else (),
        unknown=() if counted else (f"{_TOO_FEW}, and this version's has no rates to tell them from.",),
    )


def _count(name: str, line: str) -> int | None:
    found = re.search(rf"(?<![A-Za-z] ){name}: (\d+) tokens", line)
    return int(found[1]) if found else None


def _steps(drafted: int, accepted: int, rates: tuple[float, ...], line: str) -> float | None:
    """Steps of one line: its windows are whole, unless that contradicts its rates, which are shares of the steps."""
    if not rates:
        found = re.search(r"[Mm]ean acceptance length: ([\d.]+)", line)
        beyond = float(found[1].rstrip(".")) - 1 if found else 0.0
        return accepted / beyond if beyond > 0 else None
    whole = drafted / len(rates)
    if abs(sum(rates) - accepted / whole) <= len(rates) * ROUNDING + 1e-9 or not sum(rates):
        return whole
    return accepted / sum(rates)
