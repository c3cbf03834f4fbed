"""Engines' words are read as their sources mean them."""

import gzip
import json
import pprint
import re
from collections.abc import Callable
from itertools import product

import pytest

from naive_speculate.events import Event, EventKind
from naive_speculate.events.metrics import summarize
from naive_speculate.speculate.theory import expected_tokens
from naive_speculate.tools.doctor import diagnose, given, read
from naive_speculate.tools.doctor.formats import decoded
from naive_speculate.tools.doctor.reading import Stretch
from naive_speculate.tools.doctor.report import caveats
from tests import engine_samples as samples
from tests.engine_samples import log

# format: engine, steps, drafts, accepted, rates of places
EXPECTED = {
    "VLLM_LOG": ("vLLM", 37, 259, 92, (0.757, 0.622, 0.432, 0.324, 0.189, 0.108, 0.054)),
    "VLLM_LOG_WITHOUT_THROUGHPUT": ("vLLM", 354, 1062, 626, (0.802, 0.551, 0.415)),
    "VLLM_LOG_FIRST": ("vLLM", None, 400, 250, ()),
    "VLLM_PROMETHEUS": ("vLLM", 1000, 3000, 1740, (0.8, 0.56, 0.38)),
    "LLAMACPP_PROMETHEUS": ("llama.cpp", 720, 2160, 1640, (640 / 720, 540 / 720, 460 / 720)),
    "TRTLLM_PROMETHEUS": ("TensorRT-LLM", 30, 90, 45, (0.9, 0.6, 0.0)),
    "TRTLLM_ITERATIONS": ("TensorRT-LLM", 5, 15, 10, ()),
    "TRTLLM_REQUESTS": ("TensorRT-LLM", None, 100, 57, ()),
    "TRTLLM_BENCH": ("TensorRT-LLM", 100, 300, 170, ()),
    "LM_STUDIO_LOG": ("LM Studio", 123, 492, 176, ()),
    "TABBY_LINE": ("tabbyAPI", 90, 270, 120, ()),
    "MTP_BENCH": ("llama.cpp", 86, 172, 162, ()),
    "LLAMACPP_SERVER_LOG": ("llama.cpp", 690, 1207, 1186, (1.0,)),
    "LLAMACPP_SERVER_TRACE": ("llama.cpp", 20, 60, 37, (0.85, 0.6, 0.4)),
    "LLAMACPP_STATISTICS": ("llama.cpp", 200, 600, 360, (0.8, 0.6, 0.4)),
    "LLAMACPP_TIMINGS": ("llama.cpp", 46, 108, 81, ()),
    "LLAMACPP_EXAMPLE": ("llama.cpp", 48, 192, 80, ()),
    "SGLANG_META_INFO": ("SGLang", 20, 80, 42, (0.85, 0.65, 0.45, 0.15)),
    "SGLANG_META_INFO_FIRST": ("SGLang", 20, 80, 42, ()),
    "SGLANG_LOG": ("SGLang", None, None, None, ()),
    "VLLM_REQUEST": ("vLLM", 43, 129, 10, (4 / 43, 3 / 43, 3 / 43)),
    "VLLM_BENCH": ("vLLM", 1000, 3000, 1300, (0.7, 0.4, 0.2)),
    "VLLM_EXAMPLE": ("vLLM", 34, 102, 39, (0.56, 0.44, 0.15)),
    "LLAMACPP_SERVER_WORDS": ("llama.cpp", 87, 259, 167, (0.805, 0.632, 0.483)),
    "MLX_VLM_TIMINGS": ("mlx-vlm", 30, 90, 81, ()),
    "SGLANG_FINISH": ("SGLang", 20, 80, 42, ()),
    "SGLANG_LOG_BEFORE": ("SGLang", None, None, None, ()),
    "LLAMACPP_STEPS": ("llama.cpp", 4, 13, 7, (0.75, 0.5, 0.25, 0.25)),
    "SGLANG_GAUGES": ("SGLang", None, None, None, ()),
    "VLLM_REQUEST_DETAILED": ("vLLM", 8, 20, 12, (0.75, 0.375, 0.375)),
    "SGLANG_BENCH": ("SGLang", None, None, None, ()),
}


BEFORE_LINES = [
    "vllm-1  | ",
    "\x1b[36mvllm\x1b[0m | ",
    "2026-08-04T20:51:08.123Z ",
    "> ",
    "[bench] ",
    "\t",
    "INFO:root:",
    "INFO ",
]


# A line as kept by Docker, by fluent-bit in Kubernetes, by journald, by a logger.
RECORDS: list[Callable[[str], dict[str, object]]] = [
    lambda line: {"log": line, "stream": "stderr", "time": "2026-08-04T20:51:08Z"},
    lambda line: {"log": line, "kubernetes": {"pod_name": "vllm-0"}},
    lambda line: {"__REALTIME_TIMESTAMP": "1", "MESSAGE": line.rstrip("\n"), "_PID": "7"},
    lambda line: {"level": "INFO", "msg": f"\u001b[32m{line.rstrip()}\u001b[0m"},
]


ENCODINGS = [
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "utf-32-le",
    "utf-32-be",
]
NOISE = 'INFO started {not json} [\n{"level": "info", "msg": "ready"}\n'


@pytest.mark.parametrize("name", [name for name in vars(samples) if name.isupper()])
def test_a_sample_has_the_counts_of_its_engine_whatever_stands_around_it(name):
    text = getattr(samples, name)
    reading = read(text)
    engine, steps, drafted, accepted, rates = EXPECTED[name]
    assert reading.engine == engine
    assert reading.num_steps == (None if steps is None else pytest.approx(steps, rel=1e-3))
    assert (reading.num_draft_tokens, reading.num_accepted_tokens) == (drafted, accepted)
    assert reading.rates == pytest.approx(rates)
    if steps is not None:
        assert reading.accepted_per_step == pytest.approx(accepted / steps, rel=1e-3)

    mark = "\ufeff"  # where files were joined, it remains within the text
    others = (text.replace("\n", end) for end in ("\r\n", "\r", f"\n{mark}"))
    for changed in (NOISE + text + "done }\n", *others):
        assert read(changed) == reading
    if "{" not in text[:3] and "{\n" not in text:  # no object spans lines
        found = "".join(
            f"log.txt:7:{line}" for line in text.splitlines(keepends=True) if line[0] != "#"
        )  # by grep
        assert read(found) == reading
        for before in BEFORE_LINES[
            : -2 if "# HELP" in text else None
        ]:  # Prometheus text is not in logs
            assert (
                read("".join(before + line for line in text.splitlines(keepends=True))) == reading
            )
    for record in RECORDS:
        assert (
            read("\n".join(json.dumps(record(line)) for line in text.splitlines(keepends=True)))
            == reading
        )
    assert read(text.replace("  ", " \u00a0")) == reading  # as copied from a web page
    for encoding in ENCODINGS:
        assert decoded(text.encode(encoding)).removeprefix(mark) == text
        assert decoded((mark + text).encode(encoding)).lstrip(mark) == text
    found = diagnose(reading, given(0.05)).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_what_cannot_be_known_is_said():
    for sample, said in (
        (samples.LLAMACPP_TIMINGS, "rates per index"),
        (samples.LLAMACPP_SERVER_LOG, "first index only"),
        (samples.VLLM_LOG_FIRST, "does not count the steps"),
        (samples.SGLANG_META_INFO, "trees"),
    ):
        assert any(said in line for line in read(sample).unknown)
    assert any("does not count the steps" in line for line in read(samples.VLLM_LOG).derived)


def test_messages_may_span_lines_or_share_one_and_a_label_may_hold_a_brace():
    message = metrics_line(90, 180, "0.600, 0.300").strip()
    for text in (
        f"{message}{message}\n",
        f"1 {message} 2 {message}",
        f"{message}\n2026-06-17 {message}".replace(" ", "\n  "),
    ):
        assert (read(text).num_steps, read(text).rates) == (
            pytest.approx(200),
            pytest.approx((0.6, 0.3)),
        )
    named = re.sub(r'model_name="[^"]*"', r'model_name="a}\\"{b"', samples.VLLM_PROMETHEUS)
    assert named != samples.VLLM_PROMETHEUS
    assert read(named) == read(samples.VLLM_PROMETHEUS)


def test_every_form_of_a_report_gives_the_same_counts_and_a_response_without_drafts_is_none():
    details = {
        "accepted_prediction_tokens": 120,
        "rejected_prediction_tokens": 150,
        "reasoning_tokens": 0,
    }
    response = {
        "id": "c",
        "usage": {"completion_tokens": 211, "completion_tokens_details": details},
    }
    assert read(json.dumps(response)) == read(samples.TABBY_LINE)
    stats = {"accepted_draft_tokens_count": 176, "rejected_draft_tokens_count": 316}
    earlier = {"id": "c", "usage": {"completion_tokens": 300}, "stats": stats}
    assert read(json.dumps(earlier)) == read(samples.LM_STUDIO_LOG)
    averages = {
        "num_draft_tokens": 300,
        "num_accepted_draft_tokens": 170,
        "draft_acceptance_rate": 0.58,
        "acceptance_length": 2.73,
    }
    saved = {"mode": "MTP"} | {
        f"{name}_percentiles": {"minimum": 1, "average": value} for name, value in averages.items()
    }
    assert read(json.dumps({"engine": {}, "decoding_stats": saved})) == read(samples.TRTLLM_BENCH)
    assert read(samples.TRTLLM_ITERATIONS).requests_running == 2.5
    details = {
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    }  # as OpenAI's own responses have
    for response in (
        {"usage": {"completion_tokens": 9, "completion_tokens_details": details}},
        {"stats": {}},
    ):
        with pytest.raises(ValueError, match="none of the supported formats"):
            read(json.dumps(response))
    nothing = (
        samples.TRTLLM_BENCH.replace("0.58", "0.00")
        .replace("170.00", "0.00")
        .replace("2.73", "1.00")
    )
    assert diagnose(read(nothing)).draft_acceptance_rate == 0


def test_a_message_that_was_cut_spoils_no_figure():
    whole, first = read(samples.VLLM_LOG), samples.VLLM_LOG.index("SpecDecoding metrics:")
    message = samples.VLLM_LOG[first:].splitlines()[0]
    for end in range(len(message) - len(", Avg Draft acceptance rate: 35.5%")):
        reading = read(samples.VLLM_LOG + message[:end])
        if (
            reading.num_steps != whole.num_steps
        ):  # only a part of the last number, 0.054, is missing
            assert message[:end].endswith(", 0.05")
    only = read(message[: message.index(", 0.432")])
    assert (only.num_accepted_tokens, only.num_draft_tokens, only.rates) == (92, 259, ())
    assert only.num_steps == pytest.approx(92 / 2.49)


def test_cut_off_rates_and_counts_are_none_and_an_unreadable_report_hides_no_other_one():
    def until(text: str, cut: str) -> str:
        return text[: text.index(cut) + len(cut)]

    for text, cut in (
        (samples.VLLM_PROMETHEUS, 'position="1"} 5'),
        (samples.VLLM_PROMETHEUS, 'position="1"} 560.0'),
        (samples.VLLM_BENCH, "Position 1:                            4"),
        (samples.VLLM_EXAMPLE, "token 1: 0.4"),
    ):
        reading = read(until(text, cut))
        assert (reading.rates, reading.num_accepted_tokens) == ((), read(text).num_accepted_tokens)
    whole = samples.LLAMACPP_STATISTICS
    for cut in ("#acc tokens =   3", "#acc tokens =   36"):
        with pytest.raises(ValueError, match="not copied in full"):
            read(until(whole, cut))
        assert read(whole + until(whole, cut)) == read(whole)
    idle = (
        "statistics ngram_mod: #calls = 110, #gen drafts = 0, #acc drafts = 0, #gen tokens = 0,"
        " #acc tokens = 0, 0.1 ms"
    )
    for report in (
        idle,
        "vllm:spec_decode_num_draft_tokens_total 300",
        '{"acceptance_length_percentiles": [1]}',
    ):
        assert read(f"{report}\n{samples.VLLM_LOG}") == read(samples.VLLM_LOG)


def sglang(length: float, rate: float) -> str:
    return (
        f"Decode batch, #running-req: 4, #token: 90, accept len: {length:.2f}, accept rate:"
        f" {rate:.2f}, cuda graph: True\n"
    )


def metrics_line(accepted: int, drafted: int, rates: str) -> str:
    return (
        f"SpecDecoding metrics: Accepted: {accepted} tokens, Drafted: {drafted} tokens,"
        f" Per-position acceptance rate: {rates}\n"
    )


META = {
    "id": "a",
    "completion_tokens": 64,
    "spec_accept_token_num": 42,
    "spec_draft_token_num": 80,
    "spec_verify_ct": 20,
}
OTHER_META = (
    samples.SGLANG_META_INFO.replace("5f1c", "77")
    .replace("[3, 4, 4, 6, 3]", "[20]")
    .replace(": 42", ": 0")
)
TIMINGS = {"prompt_n": 9, "predicted_n": 11, "draft_n": 9, "draft_n_accepted": 6}
STREAMED_META = [{"meta_info": META | {"spec_verify_ct": 10}}, {"meta_info": META}]
STREAMED_TIMINGS = [
    {"id": "c", "timings": TIMINGS | {"draft_n": 3, "draft_n_accepted": 2}},
    {"id": "c", "timings": TIMINGS},
]
V0 = (
    "INFO 10-16 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.642, System"
    " efficiency: 0.598, Number of speculative tokens: 3, Number of accepted tokens: %d, Number of"
    " draft tokens: %d, Number of emitted tokens: %d.\n"
)
V0_FIRST = V0.replace("draft tokens", "draft tokens tokens").replace(
    "emitted tokens", "emitted tokens tokens"
)
V0_PROMETHEUS = log("v0_prometheus")
RAY = samples.VLLM_PROMETHEUS.replace("vllm:", "ray_vllm_")
RAY += RAY.replace("_total{", "{")


SUMMARY = (
    "Acceptance rate (%): 68.81\nAcceptance length: 3.06\nPosition 0: 76.56\nPosition 1:"
    " 68.76\nPosition 2: 61.10\n"
)
MEANS = log("means")
NO_RATES = (
    "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 4 tokens/s, Avg Draft"
    " acceptance rate: 50.0%"
)
ELLIPSIS = (
    "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted: 60 tokens, Drafted: 200 tokens, "
)
ELLIPSIS += "Per-position acceptance rate: 0.700, 0.500, ..."
LMDEPLOY = (
    "[2026-08-01 10:00:00 DP0] Avg thr (in/out): 1.0 / 100.0 tokens/s, Engine (running/waiting): 4"
    " / 0, KV cache: 3.0%, "
)


SHORTEST = (
    "mean acceptance length: 2.15\nacceptance at token 0:0.56\nacceptance at token"
    " 1:0.44\nacceptance at token 2:0.15\n"
)
LAST_TOKEN = (
    "accepted 3/16 draft tokens, the last target token is: (5)\naccepted 0/0 draft tokens, the"
    " last\n"
)
UNDRAFTED = (
    "id 0 | task 1 | accepted 11/0 draft tokens, new n_tokens = 741\naccepted 0/0 draft tokens, new"
    " n_tokens = 742\n"
)


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        # Lines count with the steps that they stand for; an idle one does not.
        (
            metrics_line(10, 20, "0.600, 0.400")
            + metrics_line(180, 180, "1.000, 1.000")
            + metrics_line(0, 0, "nan, nan"),
            {"num_steps": 100, "rates": (0.96, 0.94)},
        ),
        # If windows are short, the rates give the steps.
        (metrics_line(60, 150, "0.500, 0.100"), {"num_steps": 100, "drafted_per_step": 1.5}),
        # vLLM's version 0 counts accepted tokens after a rejection, so the emitted ones count
        # (vllm#9539).
        (
            V0 % (15, 30, 20) + V0 % (8547, 13311, 10616),
            {"num_steps": 4437, "num_accepted_tokens": 10616 - 4437},
        ),
        (V0_FIRST % (12, 48, 20), {"num_steps": 16, "num_accepted_tokens": 4}),
        (
            V0_PROMETHEUS,
            {"num_steps": 4437, "num_accepted_tokens": 10616 - 4437, "drafted_per_step": 3},
        ),
        (V0_PROMETHEUS.replace("0.598", "0.9"), {"num_steps": None, "num_accepted_tokens": 8547}),
        (
            V0_PROMETHEUS + 'vllm:spec_decode_efficiency{model_name="idle"} NaN\n',
            {"num_steps": 4437},
        ),
        # Ray Serve has a prefix of its own, and writes each counter twice.
        (
            RAY,
            {
                "engine": "vLLM",
                "num_steps": 1000,
                "num_draft_tokens": 3000,
                "rates": (0.8, 0.56, 0.38),
            },
        ),
        # llama.cpp of early 2026 counted no step that accepted nothing: the third call is #acc
        # drafts.
        (
            (
                "statistics dflash: #calls(b,g,a) = 4 750 454, #gen drafts = 750, #acc drafts ="
                " 454, #gen tokens = 11250, #acc tokens = 844, dur(b,g,a) = 0.003, 6842.287, 0.077"
                " ms\n"
            ),
            {"num_steps": 750, "drafted_per_step": 15, "accepted_per_step": 844 / 750},
        ),
        (  # with a single count of calls
            (
                "statistics ngram_mod: #calls = 810, #gen drafts = 15, #acc drafts = 15, #gen"
                " tokens = 960, #acc tokens = 730, dur(b,g,a) = 0.149, 0.347, 0.005 ms\n"
            ),
            {"num_steps": 15, "accepted_per_step": 730 / 15},
        ),
        # LM Studio's own library.
        (
            (
                '{"stats": {"predictedTokensCount": 300, "totalDraftTokensCount": 500,'
                ' "acceptedDraftTokensCount": 176, "rejectedDraftTokensCount": 316,'
                ' "ignoredDraftTokensCount": 8}}'
            ),
            {"engine": "LM Studio", "num_steps": 123, "num_draft_tokens": 492},
        ),
        # Of a streamed response the last report counts.
        (
            "".join(f"data: {json.dumps(chunk)}\n" for chunk in STREAMED_META) + "data: [DONE]\n",
            {"num_steps": 20},
        ),
        (
            "".join(f"data: {json.dumps(chunk)}\n" for chunk in STREAMED_TIMINGS),
            {"num_steps": 4, "num_draft_tokens": 9},
        ),
        (
            '{"draft_n": 9, "draft_n_accepted": 6}\n{"draft_n": 9, "draft_n_accepted": 2}\n',
            {"num_accepted_tokens": 8},
        ),
        # Several responses count together.
        (
            f"[{samples.SGLANG_META_INFO}, {OTHER_META}]",
            {"num_steps": 40, "rates": (0.425, 0.325, 0.225, 0.075)},
        ),
        # Timings without rounds among some with them: the rounds are derived.
        (
            json.dumps(
                [{"id": 1, "timings": TIMINGS}, {"id": 2, "timings": TIMINGS | {"draft_rounds": 4}}]
            ),
            {"num_steps": 8},
        ),
        # A length of 1 shows what the rate means.
        (sglang(1, 0.11), {"drafted_per_step": 8}),
        (sglang(1, 0), {"drafted_per_step": None}),
        (sglang(4, 1), {"drafted_per_step": 3, "other_drafted_per_step": None}),
        # Other forms of llama.cpp's lines of a step.
        (LAST_TOKEN, {"num_steps": 1}),
        (UNDRAFTED, {"num_steps": 2, "num_draft_tokens": None, "accepted_per_step": 5.5}),
        ("accepted 2/3 draft tokens, new n_past = 9\n", {"course": (Stretch(9, 1, 1),)}),
        # A line that was wrapped.
        (
            samples.LLAMACPP_STATISTICS.replace(", #", ",\n  #"),
            {"num_steps": 200, "rates": (0.8, 0.6, 0.4)},
        ),
        # Shortened summaries.
        (
            SUMMARY.replace("Position", "  Position") + SUMMARY,
            {"drafted_per_step": 3, "rates": (0.7656, 0.6876, 0.611)},
        ),
        (
            SUMMARY,
            {"drafted_per_step": 3, "accepted_per_step": 2.06, "rates": (0.7656, 0.6876, 0.611)},
        ),
        (SHORTEST, {"rates": (0.56, 0.44, 0.15)}),
        (
            MEANS,
            {
                "drafted_per_step": 4,
                "accepted_per_step": 1.89 / 2,
                "rates": (0.3815, 0.258, 0.177, 0.128),
            },
        ),
        (NO_RATES, {"drafted_per_step": 3, "rates": ()}),
        (ELLIPSIS, {"rates": ()}),  # those before it are not all
        # LMDeploy's log is its own.
        (
            LMDEPLOY + samples.VLLM_LOG_WITHOUT_THROUGHPUT,
            {"engine": "LMDeploy", "num_steps": 354, "requests_running": 4},
        ),
        # Of several formats the most informative one is read.
        (samples.VLLM_LOG_FIRST + samples.VLLM_PROMETHEUS, {"format": "Prometheus counters"}),
        (samples.LLAMACPP_TIMINGS + samples.LLAMACPP_SERVER_TRACE, {"rates": (0.85, 0.6, 0.4)}),
    ],
)
def test_the_figures_are_what_the_text_means(text, figures):
    for name, value in figures.items():
        found = getattr(read(text), name)
        assert found == (
            value if isinstance(value, str | None) or name == "course" else pytest.approx(value)
        ), name


def test_counters_read_twice_count_what_is_between():
    later = samples.VLLM_PROMETHEUS
    for before, after in (
        ("1000.0", "1500.0"),
        ("3000.0", "4500.0"),
        ("1740.0", "2140.0"),
        (" 800.0", " 1100.0"),
    ):
        later = later.replace(before, after)
    reading = read(
        samples.VLLM_PROMETHEUS + later.replace(" 560.0", " 650.0").replace(" 380.0", " 390.0")
    )
    assert (reading.num_steps, reading.num_draft_tokens, reading.num_accepted_tokens) == (
        500,
        1500,
        400,
    )
    assert reading.rates == pytest.approx((0.6, 0.18, 0.02))
    for texts in (
        [later, samples.VLLM_PROMETHEUS],
        [samples.VLLM_PROMETHEUS, later.replace("1500.0", "50.0"), later],
    ):
        with pytest.raises(ValueError, match="was restarted"):
            read("".join(texts))


def statistics(steps: int, *, name: str = "draft-mtp") -> str:
    return (
        f"statistics {name}: #calls(b,g,a) = 1 {steps} {steps}, #gen drafts = {steps}, #acc drafts"
        f" = {steps // 2}, #gen tokens = {3 * steps}, #acc tokens = {steps}, dur(b,g,a) = 0.1,"
        f" {10 * steps}.0, 0.1 ms\n"
    )


@pytest.mark.parametrize(
    ("counts", "total"),
    [
        ([100, 250, 400], 400),  # one process
        ([100, 400, 20, 90], 490),  # restarted
        ([400, 10, 420, 35, 430, 60], 490),  # two processes, or two slots of an early version
    ],
)
def test_growing_counters_count_once_for_each_process(counts, total):
    assert read("".join(map(statistics, counts))).num_steps == total
    mixed = "".join(statistics(count) + statistics(2 * count, name="ngram-mod") for count in counts)
    assert read(mixed).num_steps == 3 * total
    reading = read("".join(V0 % (3 * count, 3 * count, 2 * count) for count in counts))
    assert (reading.num_steps, reading.num_draft_tokens, reading.num_accepted_tokens) == (
        total,
        3 * total,
        total,
    )


def test_counters_have_one_meaning_however_they_are_written():
    text = "\n".join(
        line
        for line in samples.VLLM_PROMETHEUS.splitlines()
        if line[0] != "#" and "_created" not in line
    )
    whole = read(text)
    printed = re.sub(r"(?:_total)?\{.*\}", " (counter) =", re.sub(r".*per_pos.*\n?", "", text))
    printed += "\nvllm:spec_decode_num_accepted_tokens_per_pos (vector) = [800, 560, 380]\n"
    for other in (
        printed,
        re.sub(r"\} ", "} | ", text),
    ):  # LLM.get_metrics, as vLLM's example prints it; Prometheus' table
        assert read(other) == whole
    lmdeploy = read(text.replace("vllm:", "lmdeploy:"))
    assert (lmdeploy.engine, lmdeploy.num_steps, lmdeploy.rates) == ("LMDeploy", 1000, whole.rates)
    assert (
        read(re.sub("(running.*) 3.0", r"\1 0.0", text)).requests_running is None
    )  # scraped after the run


def test_a_counter_that_is_missing_is_not_zero():
    for text, first in (
        (samples.VLLM_PROMETHEUS, "# TYPE vllm:spec_decode_num_accepted_tokens_total"),
        (samples.TRTLLM_PROMETHEUS, "# TYPE trtllm_spec_decode_accepted"),
    ):
        with pytest.raises(ValueError, match="is missing: the text was not copied in full"):
            read(text[: text.index(first)])
    of_iterations = "\n".join(
        line for line in samples.TRTLLM_PROMETHEUS.splitlines() if "token_position" not in line
    )
    found = diagnose(read(of_iterations))  # TensorRT-LLM writes no counter that is 0
    assert (found.reading.num_steps, found.num_draft_tokens, found.mean_acceptance_length) == (
        None,
        3,
        1 + 66 / 99 * 3,
    )
    assert (
        diagnose(
            read(re.sub(".*num_accepted_tokens_total.*\n", "", of_iterations))
        ).draft_acceptance_rate
        == 0
    )


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 7, 8, 15])
def test_lines_of_sglang_decide_what_their_rate_means(k):
    lengths = [1 + k * share for share in (0.83, 0.41, 0.67, 0.29, 0.73, 0.11)]
    accepted = sum(round(length, 2) - 1 for length in lengths) / len(lengths)
    for before_2026_04 in (True, False):
        rates = [length / (k + 1) if before_2026_04 else (length - 1) / k for length in lengths]
        found = diagnose(read("".join(map(sglang, lengths, rates))))
        assert (found.num_draft_tokens, found.draft_acceptance_rate) == (
            k,
            pytest.approx(accepted / k),
        )
        assert expected_tokens(found.alpha, k) == pytest.approx(1 + accepted)
        assert ("before April 2026" in found.reading.derived[0]) == before_2026_04


@pytest.mark.parametrize(
    "arguments",
    [
        (
            "server_args=ServerArgs(speculative_num_steps={k}, speculative_eagle_topk=1,"
            " speculative_num_draft_tokens={more})\n"
        ),
        (
            "python -m sglang.launch_server --speculative-num-steps {k}"
            " --speculative-num-draft-tokens {more}\n"
        ),
        "--speculative-num-draft-tokens={more}\n",
        '{{"speculative_num_steps": {k}}}\n',
    ],
)
def test_the_servers_arguments_decide_what_sglangs_rate_means(arguments):
    for k in (3, 7):  # 1.60 and 0.20 are 0.6 ÷ 3 and 1.6 ÷ 8
        reading = read(arguments.format(k=k, more=k + 1) + sglang(1.6, 0.2))
        assert (reading.drafted_per_step, reading.other_drafted_per_step) == (k, None)
    assert (
        read(
            arguments.format(k=5, more=6) + "Decode batch, #running-req: 4, accept len: 2.50\n"
        ).drafted_per_step
        == 5
    )


def test_the_window_of_a_tree_is_its_depth():
    """SGLang's own recipes draft trees; the rate is of all verified tokens. Its defaults for
    Llama: topk 4, 5 steps, 8."""
    for steps, verified, rate in ((5, 64, 0.05), (5, 8, 0.39)):
        arguments = (
            f"speculative_num_steps={steps}, speculative_eagle_topk=4,"
            f" speculative_num_draft_tokens={verified}\n"
        )
        for line in (
            sglang(3.1, rate),
            "Decode batch. #running-req: 4, #token: 90, accept len: 3.10, cuda graph: True\n",
        ):
            reading = read(arguments + line)
            assert reading.drafted_per_step == steps
            assert any(f"{verified} tokens are verified" in words for words in reading.unknown)
    # SGLang verifies 5
    chain = (
        "--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 24\n"
    )
    assert read(chain + sglang(1.04, 0.21)).drafted_per_step == 4

    counts = {
        "spec_verify_ct": 200,
        "spec_num_correct_drafts": 500,
        "spec_num_proposed_drafts": 1400,
    }
    ends_early = counts | {
        "completion_tokens": 700,
        "spec_accept_histogram": [40, 30, 30, 20, 30, 50],
    }
    found = diagnose(read(json.dumps({"meta_info": ends_early})))
    assert (found.num_draft_tokens, found.reading.other_drafted_per_step) == (5, 7)
    assert found.unconditional == pytest.approx((0.8, 0.65, 0.5, 0.4, 0.25))
    assert "drops_to_zero" not in [suspect.name for suspect in found.suspects]
    assert any("trees of this depth" in line for line in found.reading.unknown)
    assert any("By the other meaning k is 7" in line for line in caveats(found))
    chance = {
        "spec_verify_ct": 4,
        "spec_accept_histogram": [1, 2, 1],
        "spec_num_correct_drafts": 4,
        "spec_num_proposed_drafts": 12,
    }
    assert read(json.dumps({"meta_info": chance})).drafted_per_step == 3  # four steps are too few


def test_where_nothing_decides_both_meanings_of_sglangs_rate_are_reported():
    reading = read(sglang(1.6, 0.2))
    assert (reading.drafted_per_step, reading.other_drafted_per_step) == (3, 7)
    (line,) = [line for line in caveats(diagnose(reading)) if "other meaning" in line]
    settled = diagnose(reading, num_draft_tokens=7)
    assert expected_tokens(settled.alpha, 7) == pytest.approx(1.6)
    assert f"k is 7, α {settled.alpha:.3f}, and 8.6%" in line
    assert settled.num_draft_tokens == 7
    assert not [line for line in caveats(settled) if "other meaning" in line]


OBJECTS = {
    "JSON": json.dumps({"meta_info": META}),
    "Python": repr({"meta_info": META, "text": "it's {"}),
    "Python with a part that is no literal": "{'at': nan, 'meta_info': " + repr(META) + "}",
    "JSON over several lines": json.dumps({"meta_info": META}, indent=2),
    "Python over several lines": pprint.pformat({"meta_info": META, "ok": True}, width=40),
    "JSON within a string": json.dumps(
        {"log": f"out {json.dumps({'meta_info': META})}\n", "stream": "stdout"}
    ),
}
BEFORE = {
    "nothing": "",
    "an object": '{"level": "info"} ',
    "an empty one": "{} ",
    "a dict": "obj=Input(params={'n': 1, 'stop': ['}']}, x={}), out=",
    "braces": "{not json} {{x}} {'a': f(1)} ",
    "an open brace": "{ open, ",
    "code cut off": "'for (;;) { if (x) { " * 8,
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_object_is_found_wherever_it_stands(kind):
    other = OBJECTS[kind].replace("'a'", "'b'").replace('"a"', '"b"').replace('"a\\"', '"b\\"')
    for name, before in BEFORE.items():
        for many, text in enumerate(
            (f"{before}{OBJECTS[kind]}", f"{before}{OBJECTS[kind]}, then {other} end\n"), 1
        ):
            reading = read(text)
            counts = (reading.num_steps, reading.num_accepted_tokens, reading.num_draft_tokens)
            assert counts == (20 * many, 42 * many, 80 * many), name


def test_llamacpps_request_is_read_in_short_and_in_full_words():
    lengths = ["mean len", "mean acc len", "mean accepted length", "mean acceptance length"]
    places = [
        "acc per pos",
        "acc rate/pos",
        "acceptance rate per pos",
        "acceptance rate per position",
    ]
    rates, ends = (
        ["draft acceptance", "draft acceptance rate"],
        [", ", "\nslot print_timing: id  1 | task 0 | "],
    )
    for rate, length, end, place in product(rates, lengths, ends, places):
        text = (
            f"{rate} = 0.64479 (  167 accepted /   259 generated), {length} =  2.92{end}{place} ="
            " (0.805, 0.632, 0.483)\n"
        )
        reading = read(text)
        assert (reading.num_steps, reading.num_draft_tokens, reading.rates) == (
            87,
            259,
            (0.805, 0.632, 0.483),
        ), text


@pytest.mark.parametrize(
    "name",
    ["draft_rounds", "n_draft_rounds", "draft_n_rounds", "num_rounds", "n_drafts", "verify_ct"],
)
def test_timings_that_count_rounds_are_believed(name):
    for rounds, drafted, accepted, tokens in ((30, 90, 81, 111), (1, 7, 6, 2)):
        timings = {
            "prompt_n": 9,
            "predicted_n": tokens,
            name: rounds,
            "draft_n": drafted,
            "draft_n_accepted": accepted,
        }
        reading = read(json.dumps({"timings": timings}))
        assert (reading.num_steps, reading.drafted_per_step) == (rounds, drafted / rounds)
        assert not reading.derived
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        read(json.dumps({name: "many", "draft_n": 4, "draft_n_accepted": 2}))


def test_the_first_tokens_of_a_stream_are_no_plain_decoding():
    """llama.cpp's `timings_per_token`: the first chunks come before the first draft."""
    chunks = [
        {"prompt_n": 9, "prompt_ms": 5.0, "predicted_n": count, "predicted_ms": 100.0 * count}
        for count in (1, 2, 3)
    ]
    chunks.append(
        chunks[0]
        | {
            "predicted_n": 40,
            "predicted_ms": 1000.0,
            "draft_n": 60,
            "draft_n_accepted": 20,
        }
    )
    stream = "".join(f"data: {json.dumps({'id': 'c', 'timings': timings})}\n" for timings in chunks)
    assert (read(stream).tokens_per_second, read(stream).plain_tokens_per_second) == (40, None)
    plain = {"id": "d", "timings": chunks[0] | {"predicted_n": 20, "predicted_ms": 1000.0}}
    assert read(stream + json.dumps(plain)).plain_tokens_per_second == 20


def test_two_runs_of_mtp_bench_give_a_speedup():
    plain = "".join(
        f"{name} pred= 100 draft=   0 acc=   0 rate=n/a tok/s=50.0 "
        for name in ("code_python", "code_cpp")
    )
    reading = read(samples.MTP_BENCH + plain)  # as pages flatten it, on one line
    assert (reading.tokens_per_second, reading.plain_tokens_per_second) == (
        pytest.approx(80),
        pytest.approx(50),
    )
    assert reading.num_steps == read(samples.MTP_BENCH).num_steps
    assert {name: one.num_draft_tokens for name, one in reading.categories.items()} == {
        "code_python": 132,
        "code_cpp": 40,
    }
    with pytest.raises(ValueError, match="none of the supported formats"):
        read(plain)


def test_one_step_whose_own_token_the_limit_cut_off_is_a_step_and_an_end_inside_one_is_none():
    details = {"accepted_prediction_tokens": 5, "rejected_prediction_tokens": 0}
    answer = {"usage": {"completion_tokens": 6, "completion_tokens_details": details}}
    assert read(json.dumps(answer)).num_steps == 1
    line = "story pred= {} draft= 40 acc= 30 rate=0.75 tok/s=50.0\n"
    reading = read(line.format(50) + line.format(29))
    assert (reading.num_steps, reading.num_after_end) == (19, 1)


def test_other_bytes_are_decoded_and_compressed_ones_unpacked():
    words = "“k” = 3, 投机解码 🎉\n" * 3 + "plain words and more of them, as logs have\n" * 9
    framed = "\x01\0\0\0\0\0\0\x40 a line as docker keeps it\n" * 3
    for text in (words, framed, ""):
        assert decoded(text.encode("utf-8")) == text
    assert decoded(b"\xff\x80 accept") == "\ufffd\ufffd accept"
    packed = gzip.compress(samples.VLLM_LOG.encode("utf-16"))
    assert decoded(packed) == samples.VLLM_LOG
    with pytest.raises(ValueError, match="compressed by gzip and damaged"):
        decoded(packed[:-20])


@pytest.mark.parametrize(
    "unit",
    ["vllm:a{", r"vllm:a{\"", "vllm:", "Speculative metrics:of speculative tokens: 1,", "id 1 |",
     "1", "a ", "[", '{"a":', "statistics x: #calls = 1 1 ", "x pred= ", "SpecDecoding metrics: ",
     "1 tokens generated in (", "[DT] AVERAGE: 1"],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_a_long_line_that_only_begins_like_known_ones_is_refused_at_once(unit):
    """A pattern that tries every beginning with every end takes minutes for the 100,000 characters
    that the page accepts, and is stopped. Reading takes half a second."""
    with pytest.raises(ValueError, match="has none of the supported formats"):
        read(unit * (100_000 // len(unit)) + '"spec_verify_ct" drafts: 1\nposition 0: 12')


def test_the_figures_are_those_of_this_librarys_own_metrics():
    windows = [(4, 4), (4, 0), (4, 1), (4, 4), (4, 2), (4, 3), (4, 0), (4, 1), (4, 1), (4, 2)]
    events = []
    for step, (drafted, accepted) in enumerate(windows):
        events += [Event(EventKind.ACCEPTED, step=step)] * accepted
        events += [Event(EventKind.REJECTED, step=step)] * (accepted < drafted)
        events.append(Event(EventKind.STEP, step=step, num_draft=drafted, num_accepted=accepted))
    metrics = summarize(events)
    kept = [sum(accepted > place for _, accepted in windows) for place in range(4)]
    name = "vllm:spec_decode_num"
    lines = [
        f"{name}_drafts_total 10",
        f"{name}_draft_tokens_total 40",
        f"{name}_accepted_tokens_total {sum(kept)}",
    ]
    lines += [
        f'{name}_accepted_tokens_per_pos_total{{position="{place}"}} {count}'
        for place, count in enumerate(kept)
    ]
    found = diagnose(read("\n".join(lines)))
    assert found.alpha == pytest.approx(metrics.alpha)
    assert found.conditional == pytest.approx(metrics.acceptance_rate_per_position)
    assert found.unconditional == pytest.approx(metrics.unconditional_acceptance_rate_per_position)
    assert found.mean_acceptance_length == pytest.approx(metrics.mean_acceptance_length)
    assert found.draft_acceptance_rate == pytest.approx(metrics.draft_acceptance_rate)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("nothing of the kind", "SpecDecoding metrics"),
        ("n_drafted = 4\nn_accept = 5\n", "5 accepted of 4"),
        ("n_drafted = 0\nn_accept = 0\n", "nothing was drafted"),
        (
            (
                "statistics ngram_mod: #calls = 9, #gen drafts = 0, #acc drafts = 0, #gen tokens ="
                " 0, #acc tokens = 0"
            ),
            "nothing was drafted",
        ),
        ("accepted 4/3 draft tokens\n", "4 accepted of 3 drafted in one step"),
        ("SpecDecoding metrics: Accepted: 0 tokens, Drafted: 0 tokens", "nothing was drafted"),
        ("vllm:spec_decode_num_draft_tokens_total many", "must be a number"),
        ("vllm:spec_decode_num_draft_tokens_total Inf", "must be a number"),
        ('{"draft_n": -1, "draft_n_accepted": 0}', "draft_n must be a whole number"),
        ('{"draft_n": 1e999, "draft_n_accepted": 0}', "draft_n must be a whole number"),
        ('{"draft_n": 4}', "draft_n_accepted must be"),
        ('{"spec_verify_ct": 3}', "completion_tokens"),
        ('{"spec_verify_ct": 3, "spec_accept_histogram": [1, 1]}', "counts 2 steps"),
        (
            '{"spec_verify_ct": 3, "spec_num_correct_drafts": [], "spec_num_proposed_drafts": 9}',
            "accepted drafts must be",
        ),
        (
            (
                "SpecDecoding metrics: Accepted: 9 tokens, Drafted: 9 tokens, Per-position"
                " acceptance rate: 0.2, 0.9"
            ),
            "at index 1",
        ),
        (
            (
                "SpecDecoding metrics: Accepted: 9 tokens, Drafted: 9 tokens, Per-position"
                " acceptance rate: 1.2.3"
            ),
            "a rate of 1.2",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text, words):
    with pytest.raises(ValueError, match=r".") as error:
        diagnose(read(text))
    assert words in str(error.value)
    assert "\n" not in str(error.value)
