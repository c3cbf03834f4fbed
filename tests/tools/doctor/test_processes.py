"""Texts of several processes: their figures are read apart, summed, and the one that differs is
named."""

import json
import re

import pytest

from naive_speculate.tools.doctor import diagnose, read
from tests import engine_samples as samples
from tests.engine_samples import log
from tests.tools.doctor.test_pasted_logs import vllm_line

ALIVE, DEAD = vllm_line([0.8, 0.45, 0.25], 200), vllm_line([0.0, 0.0, 0.0], 200)
POD = "2026-09-26T20:15:24.123Z vllm-7d4b9c6f5d-"
PREFIXES = {  # two processes' prefixes, and the name of the second
    "vLLM's engines": (
        "(EngineCore_DP0 pid=1) ",
        "(EngineCore_DP1 pid=2) ",
        "EngineCore_DP1 pid=2",
    ),
    "Ray": ("(Worker pid=7, ip=10.0.0.1) ", "(Worker pid=7, ip=10.0.0.2) ", "ip=10.0.0.2"),
    "Docker Compose": ("vllm-1  | ", "vllm-2  | ", "vllm-2"),
    "pods": (f"{POD}x2k4z ", f"{POD}q8m5t ", "vllm-7d4b9c6f5d-q8m5t"),
    "kubectl": ("[pod/vllm-0/vllm] ", "[pod/vllm-1/vllm] ", "pod/vllm-1/vllm"),
    "journald": ("Sep 19 10:11:12 gpu vllm[41]: ", "Sep 19 10:11:12 gpu vllm[42]: ", "vllm[42]"),
    "grep": ("node0.log:", "node1.log:", "node1.log"),
    "srun": ("0: ", "1: ", "1"),
    "a router's children": ("[53409] ", "[53410] ", "53410"),
    "logfmt": ("pod=a level=info ", "pod=b level=info ", "b"),
}


def interleaved(first: str, second: str, times: int = 4) -> str:
    return (first + second) * times


def dead(text: str) -> list[str]:
    return [one.words for one in diagnose(read(text)).suspects if one.name == "fades"]


@pytest.mark.parametrize("kind", PREFIXES)
def test_a_process_that_accepts_nothing_is_named_and_long_texts_are_not_suspected(kind):
    one, two, name = PREFIXES[kind]
    for text in (
        interleaved(one + ALIVE, two + DEAD),
        (one + ALIVE) * 4 + (two + DEAD) * 4,  # two files, one after the other
    ):
        found = diagnose(read(text))
        assert (found.reading.num_steps, found.reading.num_accepted_tokens) == (1600, 1200)
        assert len(found.reading.processes) == 2
        (words,) = dead(text)
        assert words.startswith("All steps without acceptance are of ")
        assert name in words.split(":")[0]
        assert "long request" not in words
        assert name in json.dumps(found.to_dict()["reading"]["processes"])


def test_records_and_headers_name_processes_and_vllm_s_front_end_its_engines():
    def record(name: str, line: str) -> str:
        return json.dumps({"MESSAGE": line.strip(), "_PID": name}) + "\n"

    def pod(name: str, line: str) -> str:
        return json.dumps({"log": line, "kubernetes": {"pod_name": name}}) + "\n"

    front = "(APIServer pid=1) INFO [loggers.py:310] Engine 00{}: Avg generation throughput: 1\n"
    for text, name in (
        (interleaved(record("41", ALIVE), record("42", DEAD)), "42"),
        (interleaved(pod("a-0", ALIVE), pod("a-1", DEAD)), "a-1"),
        (f"==> a.log <==\n{ALIVE * 4}\n==> b.log <==\n{DEAD * 4}", "b.log"),
        (
            interleaved(
                front.format(0) + "(APIServer pid=1) " + ALIVE,
                front.format(1) + "(APIServer pid=1) " + DEAD,
            ),
            "engine 001",
        ),
    ):
        assert name in dead(text)[0].split(":")[0]


def test_a_process_that_fades_is_still_suspected_of_long_texts_by_name():
    text = interleaved("(A pid=1) " + ALIVE, "(B pid=2) " + ALIVE) + ("(B pid=2) " + DEAD) * 4
    (words,) = dead(text)
    assert "in some reports of B pid=2" in words


def test_of_processes_that_all_accept_the_lowest_is_named_unless_chance_explains_it():
    low = vllm_line([0.2, 0.08, 0.02], 200)
    found = diagnose(read(interleaved("(A pid=1) " + ALIVE, "(B pid=2) " + low)))
    assert found.suspects[0].name == "one_differs"
    assert "in B pid=2 and 0.67 in the others" in found.suspects[0].words
    few = vllm_line([0.7, 0.4, 0.2], 10)
    found = diagnose(read("(A pid=1) " + ALIVE + "(B pid=2) " + few))
    assert "one_differs" not in [one.name for one in found.suspects]
    short = vllm_line([0.2], 200)  # another k
    found = diagnose(read(interleaved("(A pid=1) " + ALIVE, "(B pid=2) " + short)))
    assert "falls with k by arithmetic" in found.suspects[0].words


def test_a_process_that_drafts_nothing_is_left_out_by_name():
    none = "INFO SpecDecoding metrics: Accepted: 0 tokens, Drafted: 0 tokens\n"
    reading = read(interleaved("(A pid=1) " + ALIVE, "(B pid=2) " + none))
    assert reading.num_steps == 800
    assert any(words.startswith("B pid=2 is left out") for words in reading.unknown)


def test_lines_of_two_llama_servers_are_paired_within_each():
    lines = [
        "[53409] prompt eval time =     300.11 ms /    20 tokens",
        "[53410] prompt eval time =     100.11 ms /    20 tokens",
        "[53409]        eval time =   15965.32 ms /   192 tokens (   83.15 ms per token)",
        "[53410]        eval time =    5500.00 ms /   100 tokens (   55.00 ms per token)",
        "[53409] draft acceptance rate = 0.69811 (  111 accepted /   159 generated)",
        "[53410] draft acceptance rate = 0.75000 (   60 accepted /    80 generated)",
    ]
    found = diagnose(read("\n".join(lines)))
    assert (found.reading.num_steps, found.measured_speedup) == (80 + 39, None)
    statistics = "statistics draft-mtp: #calls(b,g,a) = 1 {0} {0}, #gen drafts = {0}, #acc drafts"
    statistics += " = {1}, #gen tokens = {2}, #acc tokens = {3}, dur(b,g,a) = 0.001, 1.0, 0.1 ms\n"
    first, second, third = (50, 45, 150, 120), (20, 8, 60, 12), (400, 160, 1200, 240)
    text = "[1] " + statistics.format(*first) + "[2] " + statistics.format(*second)
    reading = read(text + "[2] " + statistics.format(*third))
    counts = reading.num_steps, reading.num_accepted_tokens, reading.num_draft_tokens
    assert counts == (450, 360, 1350)


def scrape(steps: int, start: float | None = None, created: float | None = None, labels: str = ""):
    """vLLM's counters: each step drafts three tokens, half of which are accepted."""
    rows = [f"process_start_time_seconds {start}\n"] if start else []
    for name, per_step in (("drafts", 1), ("draft_tokens", 3), ("accepted_tokens", 1.5)):
        name = f"vllm:spec_decode_num_{name}"
        rows.append(f'{name}_total{{engine="0"{labels}}} {steps * per_step}\n')
        rows += [f'{name}_created{{engine="0"{labels}}} {created}\n'] if created else []
    return "".join(rows)


BEGAN = {"start": [1.7888001e9, 1.788895e9], "created": [1.7888001e9, 1.788895e9]}


@pytest.mark.parametrize("kinds", [["start"], ["created"], ["start", "created"]])
def test_two_replicas_metrics_are_summed_in_any_order_and_two_scrapes_of_one_differenced(kinds):
    first, second = ({kind: BEGAN[kind][number] for kind in kinds} for number in (0, 1))
    for text, steps in (
        (scrape(1000, **first) + scrape(3000, **second), 4000),
        (scrape(3000, **second) + scrape(1000, **first), 4000),  # not a restart
        (scrape(1000, **first) + scrape(1100, **second), 2100),
        (scrape(1000, **first) + scrape(1600, **first), 600),
        (
            scrape(10, **first)
            + scrape(20, **second)
            + scrape(110, **first)
            + scrape(320, **second),
            400,
        ),
        (scrape(1000, **first) + scrape(1600, **first) + scrape(50, **second), 1650),
    ):
        reading = read(text)
        assert reading.num_steps == steps
        assert reading.accepted_per_step == pytest.approx(1.5)
    assert len(read(scrape(5, **first) + scrape(5, **second)).processes) == 2


def test_labels_tell_processes_apart_and_name_them():
    text = scrape(1000, labels=',instance="a:8000"') + scrape(3000, labels=',instance="b:8000"')
    reading = read(text)
    assert (reading.num_steps, [*reading.processes]) == (
        4000,
        ["instance a:8000", "instance b:8000"],
    )
    with pytest.raises(ValueError, match="restarted in between, or these are two engines"):
        read(scrape(3000) + scrape(1000))


def test_gauges_of_two_sglang_replicas_are_weighted_by_their_own_requests():
    def replica(start: float, running: int, length: float) -> str:
        return (
            f"process_start_time_seconds {start}\nsglang:num_running_reqs {running}\n"
            f"sglang:spec_accept_length {length}\nsglang:spec_num_steps 3\n"
        )

    reading = read(replica(1e9, 1, 1.5) + replica(2e9, 3, 3.5))
    assert reading.accepted_per_step == pytest.approx((0.5 + 3 * 2.5) / 4)


METRICS = log("metrics")


def test_what_get_metrics_returns_is_read_as_a_notebook_prints_it():
    for text in (METRICS, re.sub(r"\s+", " ", METRICS), METRICS.replace("(\n    name", "(name")):
        reading = read(text)
        assert (reading.num_steps, reading.num_draft_tokens, reading.num_accepted_tokens) == (
            40,
            120,
            54,
        )
        assert reading.rates == pytest.approx((30 / 40, 16 / 40, 8 / 40))
    both = read(METRICS + METRICS.replace("'0'", "'1'"))
    assert (both.num_steps, [*both.processes]) == (80, ["engine 0", "engine 1"])


def test_one_process_s_text_reads_as_before():
    assert read(samples.VLLM_PROMETHEUS).processes == {}
    assert read("(EngineCore_DP0 pid=1) " + ALIVE).processes == {}
