"""Logs as people paste them: what each line means, and the faults that they show."""

import json
import random
import re
from itertools import accumulate, islice

import pytest

from naive_speculate.tools.doctor import diagnose, given, read
from naive_speculate.tools.doctor.ends import drop, fade
from naive_speculate.tools.doctor.reading import Stretch
from tests import engine_samples as samples
from tests.engine_samples import log


def bench(*, tpot: float, running: int = 1, drafts: str = "", name: str = "m") -> str:
    return (
        f"Namespace(model='{name}')\n============ Serving Benchmark Result ============\nSuccessful"
        f" requests:      100   \nMaximum request concurrency:     {running}   \nMean TPOT (ms):   "
        f"       {tpot:.2f} \n{drafts}{'=' * 50}\n"
    )


def drafts(rates: list[float], steps: int = 1000) -> str:
    lines = [
        f"Acceptance length:   {1 + sum(rates):.2f}",
        f"Drafts:   {steps}",
        f"Draft tokens:   {steps * len(rates)}",
    ]
    lines += [f"Accepted tokens:   {round(steps * sum(rates))}", "Per-position acceptance (%):"]
    return "\n".join(
        [
            *lines,
            *(f"  Position {index}:      {100 * rate:.2f}" for index, rate in enumerate(rates)),
            "",
        ]
    )


DRAFTED = drafts([0.87, 0.7, 0.6])


def vllm_line(rates: list[float], steps: int = 100) -> str:
    accepted, shares = round(steps * sum(rates)), ", ".join(f"{rate:.3f}" for rate in rates)
    return (
        "INFO 06-30 [metrics.py:120] SpecDecoding metrics: Mean acceptance length:"
        f" {1 + sum(rates):.2f}, Accepted: {accepted} tokens, Drafted: {steps * len(rates)} tokens,"
        f" Per-position acceptance rate: {shares}\n"
    )


def llama_steps(accepted: list[int]) -> str:
    """Steps of four drafts."""
    ends = accumulate((count + 1 for count in accepted), initial=100)
    line = "slot update_slots: id  0 | task 7 | accepted {}/4 draft tokens, new n_tokens = {}\n"
    return "".join(map(line.format, accepted, islice(ends, 1, None)))


def faults(text: str) -> list[str]:
    return [suspect.name for suspect in diagnose(read(text)).suspects]


STEPS = {"num_spec_steps": 60, "num_draft_tokens": 180, "num_accepted_draft_tokens": 60}
STEPS |= {"per_step_accepted": [2] * 30 + [0] * 30, "per_step_drafted": [3] * 60}
SEEN = {  # each kind, one log, the fault that must come first
    "vLLM's log, a block drafter with a broken window": (
        vllm_line([0.34] + [0.0] * 14),
        "drops_to_zero",
    ),
    "vLLM's example, a head that drafts further than it was trained": (
        "num_drafts: 400\nnum_draft_tokens: 2000\nnum_accepted_tokens: 600\n"
        + "".join(
            f"acceptance at token {index}:{rate:.2f}\n"
            for index, rate in enumerate([0.8, 0.7, 0, 0, 0])
        ),
        "drops_to_zero",
    ),
    "vLLM's benchmark": (bench(tpot=20, drafts=drafts([0.7, 0.5, 0.4, 0.0, 0.0])), "drops_to_zero"),
    "vLLM's log, some requests past the drafter's context": (
        (vllm_line([0.8, 0.6, 0.4]) + vllm_line([0.0, 0.0, 0.0])) * 3,
        "fades",
    ),
    "SGLang's log, past the drafter's context": (
        "".join(
            f"Decode batch, #running-req: 2, #token: {2 * at}, accept len: {length:.2f}, accept"
            " rate: 0.50\n"
            for at, length in [
                (500, 2.6),
                (1200, 2.4),
                (2000, 2.5),
                (2500, 1.0),
                (3300, 1.0),
                (4000, 1.0),
            ]
        ),
        "fades",
    ),
    "llama.cpp's steps, past the drafter's context": (
        llama_steps([3, 0, 4, 2, 1] * 30 + [0] * 60),
        "fades",
    ),
    "vLLM's requests, each step": (
        json.dumps({"usage": {"prompt_tokens": 1900}, "metrics": STEPS}),
        "fades",
    ),
    "vLLM's log, wrong layers": (vllm_line([0.02, 0.0, 0.0, 0.0]), "near_zero"),
    "vLLM's Prometheus text, skipped drafts": (
        (
            "vllm:spec_decode_num_drafts_total 900\nvllm:spec_decode_num_draft_tokens_total 4500\n"
            "vllm:spec_decode_num_accepted_tokens_total 0\n"
        ),
        "near_zero",
    ),
    "SGLang's gauges, another template": (
        "sglang:spec_accept_length 1.02\nsglang:spec_num_steps 5\nsglang:spec_num_draft_tokens 6\n",
        "near_zero",
    ),
    "SGLang's log, zero (sglang#27829)": (
        "Decode batch. #running-req: 1, #token: 4096, accept len: 1.00, accept rate: 0.00, cuda"
        " graph: True\n" * 3,
        "near_zero",
    ),
    "SGLang's log, almost zero": ("Decode batch, #running-req: 1, accept len: 1.03\n", "near_zero"),
    "llama.cpp's steps, another tokenizer": (llama_steps([0] * 40 + [1] + [0] * 40), "near_zero"),
    "a mixture of experts": (
        bench(tpot=8.1) + bench(tpot=9.5, drafts=DRAFTED, name="Qwen/Qwen3-30B-A3B"),
        "no_speedup experts",
    ),
    "mlx-vlm's timings, with and without drafts": (
        samples.MLX_VLM_TIMINGS.replace('"predicted_n"', '"predicted_ms": 9000, "predicted_n"')
        + '{"timings": {"predicted_n": 100, "predicted_ms": 8000.0}}',
        "no_speedup",
    ),
    "a large batch": (
        bench(tpot=30, running=128) + bench(tpot=41, running=128, drafts=DRAFTED),
        "no_speedup batch",
    ),
    "llama.cpp's n-gram drafter, which finds little": (log("ngram"), "rare_drafts does_not_pay"),
    "the same, of 2026": (log("ngram_2026"), "rare_drafts"),
    "an expensive drafter": (log("expensive"), "no_speedup draft_cost"),
}


@pytest.mark.parametrize("kind", SEEN)
def test_a_fault_is_recognised_in_its_log(kind):
    text, names = SEEN[kind]
    assert faults(text)[: len(names.split())] == names.split()


EXPENSIVE = SEEN["an expensive drafter"][0]
HEALTHY = [
    samples.VLLM_BENCH,
    EXPENSIVE[EXPENSIVE.index("       eval time =   12000") :].replace(
        "= 1 64 64", "= 4 64 64"
    ),  # three are not in the log
    vllm_line([0.6, 0.3, 0.15, 0.07, 0.04, 0.02, 0.01, 0.0], 100),  # every index accepts half
    vllm_line([0.8, 0.6, 0.5]) + vllm_line([0.0, 0.0, 0.0], 2),
    vllm_line([0.5, 0.3, 0.2, 0.1, 0.1, 0.1, 0, 0, 0, 0], 400).replace(
        "4000 tokens", "900 tokens"
    ),  # short windows
    llama_steps([3, 0, 4, 2, 1] * 12 + [0] * 3),
    samples.LLAMACPP_STATISTICS,
    samples.LLAMACPP_SERVER_LOG,
    bench(tpot=20) + bench(tpot=9, drafts=DRAFTED, name="Qwen3-30B-A3B"),
    bench(tpot=20, running=64) + bench(tpot=19, drafts=DRAFTED),  # not the same load
]


@pytest.mark.parametrize("text", HEALTHY)
def test_healthy_logs_show_none_of_these(text):
    assert not {*faults(text)} & {
        "drops_to_zero",
        "fades",
        "near_zero",
        "no_speedup",
        "rare_drafts",
        "draft_cost",
    }


def test_chance_is_seldom_taken_for_a_fault():
    chance, found = random.Random(5), 0
    for _ in range(200):
        windows = [
            next((index for index in range(8) if chance.random() > 0.5), 8) for _ in range(60)
        ]
        found += (
            drop([sum(count > index for count in windows) / 60 for index in range(8)], 60)
            is not None
        )
        found += (
            fade([Stretch(float(at), 1, min(count, 1)) for at, count in enumerate(windows)])
            is not None
        )
    assert found <= 12  # 3% of 400


SGLANG_BLOCK = log("sglang_block")


def test_a_measured_speedup_is_compared_with_the_tokens_per_step_at_the_load_of_its_own_block():
    assert diagnose(read(samples.VLLM_BENCH)).measured_speedup is None
    found = diagnose(
        read(bench(tpot=8.0) + bench(tpot=10.0, drafts=drafts([0.9, 0.8]))), given(0.05)
    )
    assert found.measured_speedup == pytest.approx(0.8)
    assert "as long as 3.38 plain tokens" in found.suspects[0].words
    # SGLang prints the load first
    drafting, slow = "Accept length:     2.20      \n", SGLANG_BLOCK.format(8, "", 30.0)
    found = diagnose(
        read(
            SGLANG_BLOCK.format("not set", "", 1.0) + slow + SGLANG_BLOCK.format(8, drafting, 20.0)
        )
    )
    assert (found.reading.engine, found.reading.requests_running) == ("SGLang", 8)
    assert found.measured_speedup == pytest.approx(1.5)
    assert (
        diagnose(read(slow + SGLANG_BLOCK.format(1, drafting, 20.0))).measured_speedup is None
    )  # not the same load


def test_a_step_is_counted_once_however_often_it_is_printed():
    whole = read(samples.LLAMACPP_STEPS)
    for kind in (r"accepted +\d+/ *\d+ draft tokens$", "add accepted", "new n_tokens"):
        lines = [line for line in samples.LLAMACPP_STEPS.splitlines() if re.search(kind, line)]
        reading = read("\n".join(lines))
        assert reading.num_steps == len(lines)
        assert whole.num_steps == 4
    assert diagnose(whole).conditional == pytest.approx((3 / 4, 2 / 3, 1 / 2, 1.0))
    assert [stretch.position for stretch in whole.course] == [652, 657, 658, 658]


@pytest.mark.parametrize("levels", ["ID", "I", "D"])
def test_a_window_that_is_decoded_again_is_no_second_step(levels):
    lines = log("restored")
    reading = read("".join(line for line in lines.splitlines(keepends=True) if line[0] in levels))
    assert (reading.num_steps, reading.num_accepted_tokens) == (2, 6)
    assert reading.num_draft_tokens == (10 if "I" in levels else 7)
    assert any("full length is unknown" in line for line in reading.unknown) == ("I" not in levels)


def test_the_gauges_of_sglang_mean_what_their_help_says():
    found = diagnose(read(samples.SGLANG_GAUGES))
    assert (
        found.num_draft_tokens,
        found.draft_acceptance_rate,
        found.reading.requests_running,
    ) == (3, pytest.approx(0.6), 4)
    rest = "\n".join(line for line in samples.SGLANG_GAUGES.splitlines() if "spec_num" not in line)
    assert diagnose(read(rest)).num_draft_tokens == 3
    old = rest.replace(
        "accepted drafts / proposed drafts", "accepted tokens / total draft tokens"
    ).replace("} 0.6", "} 0.7")
    assert diagnose(read(old)).num_draft_tokens == 3
    ranks = (
        'sglang:spec_accept_length{dp_rank="0"} 3\nsglang:num_running_reqs{dp_rank="0"}'
        " 3\nsglang:spec_num_steps 4\n"
    )
    ranks += 'sglang:spec_accept_length{dp_rank="1"} 2\nsglang:num_running_reqs{dp_rank="1"} 1\n'
    assert diagnose(read(ranks)).mean_acceptance_length == pytest.approx(2.75)
    tree = "sglang:spec_accept_length 3\nsglang:spec_num_steps 5\nsglang:spec_num_draft_tokens 64\n"
    assert any("64 tokens are verified" in line for line in read(tree).unknown)
    with pytest.raises(ValueError, match="nothing was drafted"):
        read("sglang:spec_accept_length 0.0\n")


def test_windows_of_different_length_give_exact_rates():
    detailed = json.loads(samples.VLLM_REQUEST_DETAILED)
    spec = detailed["metrics"]["speculative_decoding"]
    spec["per_step_drafted"] = [3, 1, 3, 3, 1, 3, 3, 3]
    exact = (6 / 8, 3 / 4, 1.0)  # two of eight windows have one token, and it was accepted
    assert diagnose(read(samples.VLLM_REQUEST_DETAILED)).conditional == pytest.approx(exact)
    del spec["acceptance_histogram_by_draft_length"]
    found = diagnose(read(json.dumps(detailed)))
    assert found.conditional == pytest.approx(exact)
    assert found.alpha == pytest.approx(12 / 15)
    assert [stretch.position for stretch in found.reading.course][:3] == [12, 13, 15]
    # without empty counts, as AIPerf writes it
    spec["acceptance_histogram"] = {"0": 2, "1": 3, "3": 3}
    assert read(json.dumps(detailed)).rates == (0.75, 0.375, 0.375)
    spec["acceptance_histogram"] = {"0": 2, "1": 3, str(10**12): 3}  # takes no memory
    assert read(json.dumps(detailed)).rates == ()


SGLANG_LENGTHS = [
    "Average Latency: 92.421 s\nAverage Accept length: 2.500\n",
    "#questions: 80, Throughput: 378.57 token/s, Acceptance length: 2.50\n",
    "batch size: 1\nacc_length: 2.50 \n",
    (
        '{"run_name": "a", "batch_size": 1, "acc_length": 2.5}\n{"run_name": "b", "batch_size": 1,'
        ' "acc_length": -1}\n'
    ),
    (
        '{"backend": "sglang", "max_concurrency": 1, "mean_tpot_ms": 9.0, "accept_length": 2.5}\n'
        '{"backend": "sglang", "max_concurrency": 1, "mean_tpot_ms": 18.0, "accept_length": null}\n'
    ),
    '{"speculative_num_steps": 3, "internal_states": [{"avg_spec_accept_length": 2.5}]}',
]


@pytest.mark.parametrize("text", SGLANG_LENGTHS)
def test_every_program_of_sglang_names_the_mean_length(text):
    found = diagnose(read(text))
    assert (found.reading.engine, found.mean_acceptance_length) == ("SGLang", 2.5)
    assert found.num_draft_tokens == (3 if "num_steps" in text else None)
    assert found.measured_speedup == (2 if "tpot" in text else None)


def test_a_saved_benchmark_is_the_printed_one_and_words_before_a_label_change_its_meaning():
    rates = {
        "spec_decode_per_position_acceptance_rates": [0.7, 0.4, 0.2],
        "mean_tpot_ms": 9.0,
        "max_concurrency": None,
    }
    counts = {
        "num_drafts": 1000,
        "draft_tokens": 3000,
        "accepted_tokens": 1300,
        "acceptance_length": 2.3,
    }
    saved = {f"spec_decode_{name}": value for name, value in counts.items()} | rates
    assert (
        read(json.dumps(saved))
        == read(samples.VLLM_BENCH + "Num drafts: 34\n")
        == read(samples.VLLM_BENCH)
    )
    with pytest.raises(ValueError, match="none of the supported formats"):
        read("Num drafts: 34\nTotal draft tokens: 102\nNum accepted tokens: 39\n")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Qwen/Qwen3-30B-A3B-FP8", "30B-A3B"),
        ("print_info: n_expert         = 128", "128"),
        ("mistralai/Mixtral-8x7B", "8x7B"),
        ("--enable-expert-parallel", "--enable-expert-parallel"),
        ("print_info: n_expert         = 0", ""),
        ("Qwen3-8B", ""),
        ("deepseek-ai/DeepSeek-V4-Flash", "DeepSeek-V4-Flash"),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-R1-0528"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", ""),  # dense
        ("zai-org/GLM-4-9B", ""),
    ],
)
def test_a_mixture_of_experts_is_known_by_its_name(name, words):
    assert words in read(f"{name}\n{samples.VLLM_BENCH}").experts
    assert bool(read(f"{name}\n{samples.VLLM_BENCH}").experts) == bool(words)


@pytest.mark.parametrize(
    "field",
    [{"acceptance_histogram": 5}, {"acceptance_histogram": [None]}, {"per_step_accepted": True},
     {"per_step_drafted": "3"},
     {"acceptance_histogram": [10], "acceptance_histogram_by_draft_length": {"3": 5}}],
)  # fmt: skip
def test_what_is_no_list_of_counts_is_refused_by_name(field):
    metrics = {
        "num_spec_steps": 10,
        "num_draft_tokens": 30,
        "num_accepted_draft_tokens": 12,
        "acceptance_histogram": [10],
    }
    with pytest.raises(ValueError, match=r"\w+ must be a (list of )?whole number"):
        read(json.dumps({"id": ["no name"], "metrics": {"speculative_decoding": metrics | field}}))


QUOTED = (
    "[2026-09-29 00:00:00 TP0] Decode batch, #running-req: 2, #token: 5632, token usage: 0.12,"
    " accept len: 2.80, accept rate: 0.60, cuda graph: True, gen throughput (token/s): 95.33,"
    " #queue-req: 1"
)


@pytest.mark.parametrize(
    "quoted",
    [
        QUOTED.partition("Decode batch, ")[2],
        "I get " + QUOTED.partition("#token: 5632, ")[2],
        "now: accept len: 2.80, accept rate: 0.60",
    ],
)
def test_sglangs_line_is_read_as_people_quote_it(quoted):
    whole, reading = (
        diagnose(read("--speculative-num-steps 3\n" + text)) for text in (QUOTED, quoted)
    )
    for name in ("mean_acceptance_length", "alpha", "num_draft_tokens", "draft_acceptance_rate"):
        assert getattr(reading, name) == pytest.approx(getattr(whole, name)), name


def test_lines_of_xinfer_add_up_and_those_without_drafts_are_left_out():
    line = "2026-09-01 INFO [Seq {}] MTP Speculation: steps={} proposed={} accepted={} rate=60.0%"
    rest = " avg_tok/step=3.80 grammar_bound=0 target_bound=0\n"
    reading = read(
        "".join(line.format(*each) + rest for each in ((1, 10, 30, 18), (2, 20, 60, 27)))
    )
    assert (reading.engine, reading.num_steps) == ("xinfer", 30)
    assert (reading.num_draft_tokens, reading.num_accepted_tokens) == (90, 45)
    also = line.format(3, 5, 0, 0) + rest + line.format(4, 10, 30, 18) + rest
    assert read(also).num_steps == 10
    with pytest.raises(ValueError, match="none of the supported"):
        read(line.format(3, 5, 0, 0) + rest)


TABLE = """
category  samples  avg_prompt_t/s  avg_pred_t/s  avg_latency  accept_rate
--------  -------  --------------  ------------  -----------  -----------
coding    80       812.10          60.00         9.100s       0.8000
writing   80       790.00          40.00         12.300s      0.5000
overall   160      801.05          50.00         10.700s      0.6500
"""
PLAIN = re.sub(r"\d\.\d{4}$", "n/a", TABLE, flags=re.MULTILINE)
COMPARED = """
| category | base_avg_pred_t/s | spec_avg_pred_t/s | decode_speedup | base_avg_latency | \
spec_avg_latency | latency_speedup | accept_rate |
| --- | --- | --- | --- | --- | --- | --- | --- |
| coding | 25.00 | 60.00 | 2.40x | 20.000s | 9.100s | 2.20x | 0.8000 |
| overall | 25.00 | 50.00 | 2.00x | 20.000s | 10.700s | 1.87x | 0.6500 |
"""


@pytest.mark.parametrize("before", ["", "> ", "bench-1  | "])
def test_the_tables_of_llamacpps_speed_bench_are_read(before):
    def quoted(table: str) -> str:
        return "".join(before + line + "\n" for line in table.splitlines())

    found = diagnose(read(quoted(TABLE)), num_draft_tokens=4)
    assert found.draft_acceptance_rate == 0.65
    assert found.mean_acceptance_length == 1 + 4 * 0.65
    assert found.reading.categories["coding"].acceptance == 0.8
    assert diagnose(read(quoted(TABLE))).mean_acceptance_length is None
    assert diagnose(read(quoted(COMPARED))).measured_speedup == 2.0
    both = diagnose(read(quoted(TABLE + PLAIN.replace(" 50.00 ", " 20.00 "))))
    assert both.measured_speedup == 2.5
    with pytest.raises(ValueError, match="none of the supported"):
        read(quoted(PLAIN))
    with pytest.raises(ValueError, match=r"a rate of 1.5 is impossible"):
        read(quoted(TABLE.replace("0.6500", "1.5000")))
