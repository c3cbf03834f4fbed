"""Engines on MLX, OpenVINO, tokenspeed and benchmarks; what their figures count; two logs
compared."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive_speculate.tools.doctor import diagnose, read
from naive_speculate.tools.doctor.compare import compared
from naive_speculate.tools.doctor.report import caveats
from naive_speculate.tools.doctor.rules import RULES
from tests import engine_samples as samples
from tests.engine_samples import log
from tests.programs import refusal, run_program
from tests.tools.doctor.test_pasted_logs import vllm_line

OLLAMA = log("ollama")
OMLX = log("omlx")
TOKENSPEED = log("tokenspeed")
RAPID_MLX = log("rapid_mlx")
OPENVINO = log("openvino")
OPENVINO_PERF = """\
MAIN MODEL
  Generate time: 100 ms
  Num generated token: {} tokens
  Total iteration number: 4
  Num accepted token: {} tokens

DRAFT MODEL
  Generate time: 10 ms
  Num generated token: {} tokens
"""
SPEC_BENCH = "\n".join(
    json.dumps({"question_id": n, "category": kind, "model_id": model, "choices": [choice]})
    for n, kind, model, choice in (
        (1, "writing", "m", {"new_tokens": [8], "wall_time": [0.2], "accept_lengths": [3, 3, 2]}),
        (2, "math", "m", {"new_tokens": [8], "wall_time": [0.2], "accept_lengths": [4, 4]}),
        (1, "writing", "plain", {"new_tokens": [8], "wall_time": [0.4], "accept_lengths": [1] * 8}),
    )
)
SPECULATORS = log("speculators")
FROM_DRAFT = [True, True, False, True, False, False, True]
READ = {  # engine: text, steps, accepted, drafted, rates
    "Ollama": (OLLAMA * 2, 174, 334, 518, ()),
    "oMLX": (OMLX, 20, 24, 41, (0.7, 0.35, 0.15)),
    "Rapid-MLX": (RAPID_MLX, 30, 40, 60, (25 / 30, 0.5)),
    "OpenVINO GenAI": (OPENVINO, 5, 5, 25, (0.6, 0.4, 0.0, 0.0, 0.0)),
    "Spec-Bench": (SPEC_BENCH, 5, 11, None, (1.0, 0.8, 0.4)),
    "vLLM": (SPECULATORS, 4800, 8400, 14400, (0.8, 0.55, 0.4)),
    "mlx-lm": (
        "\n".join(f"GenerationResponse(text='a', from_draft={one})" for one in FROM_DRAFT),
        4,
        4,
        None,
        (0.75, 0.25),
    ),
}


@pytest.mark.parametrize("engine", READ)
def test_the_figures_are_those_of_the_text(engine):
    text, steps, accepted, drafted, rates = READ[engine]
    reading = read("other words\n" + text + "\nmore")
    counts = reading.engine, reading.num_steps, reading.num_accepted_tokens
    assert counts == (engine, steps, accepted)
    assert reading.num_draft_tokens == drafted
    assert reading.rates == pytest.approx(rates)


def test_from_draft_is_read_as_json_too():
    text = "\n".join(json.dumps({"token": 1, "from_draft": one}) for one in FROM_DRAFT)
    assert read(text).num_steps == 4
    assert diagnose(read(text), num_draft_tokens=2).draft_acceptance_rate == pytest.approx(0.5)


def test_omlx_counts_judged_tokens_so_that_its_rate_is_alpha():
    assert diagnose(read(OMLX)).alpha == pytest.approx(24 / 41)
    assert read(OMLX).drafted_share == pytest.approx(20 / 30)


def test_tokenspeed_spells_sglang_s_line_in_its_own_way():
    found = diagnose(read(TOKENSPEED))
    assert (found.reading.engine, found.num_draft_tokens) == ("tokenspeed", 3)
    assert found.draft_acceptance_rate == pytest.approx(0.3)
    counters = samples.VLLM_PROMETHEUS.replace("vllm:", "tokenspeed:")
    assert (read(counters).engine, read(counters).num_steps) == ("tokenspeed", 1000)


def test_spec_bench_s_baseline_gives_the_speed_of_plain_decoding():
    found = diagnose(read(SPEC_BENCH))
    assert found.measured_speedup == pytest.approx((16 / 0.4) / (8 / 0.4))
    assert {*found.reading.categories} == {"writing", "math"}


def test_openvino_s_last_step_is_added_to_its_draft_tokens():
    reading = read(OPENVINO_PERF.format(12, 8, 8))  # three steps, of which two are counted
    assert (reading.num_steps, reading.num_draft_tokens, reading.num_accepted_tokens) == (3, 12, 8)
    alone = read(OPENVINO_PERF.format(7, 5, 0))
    assert (alone.num_steps, alone.num_draft_tokens, alone.num_accepted_tokens) == (1, None, 5)
    assert diagnose(alone, num_draft_tokens=5).draft_acceptance_rate == 1


def sglang(*reports: tuple[float, float]) -> str:
    line = "Decode batch, #running-req: 1, accept len: {:.2f}, accept rate: {:.2f}\n"
    return "".join(line.format(*report) for report in reports)


def test_windows_that_vary_are_averaged_over_the_lines():
    found = diagnose(read(sglang((1.85, 0.85), (3.4, 0.8), (5.9, 0.7))))
    assert found.num_draft_tokens == pytest.approx(11 / 3)
    assert found.draft_acceptance_rate == pytest.approx(8.15 / 11)
    assert found.reading.other_drafted_per_step is None
    assert any("speculative-adaptive" in words for words in found.reading.derived)
    assert read(sglang((2.8, 0.6), (2.5, 0.5))).drafted_per_step == 3  # one window fits both


def test_adaptive_windows_are_named_as_a_cause_of_short_ones():
    line = vllm_line([0.8, 0.3, 0.1, 0.05], 400).replace("1600 tokens", "800 tokens")
    (words,) = [one.words for one in diagnose(read(line)).suspects if one.name == "short_windows"]
    assert "num_speculative_tokens_per_batch_size" in words
    assert "speculative-adaptive" in words


def timings(predicted: int, accepted: int, prompt_ms: float, **more: object) -> str:
    figures = {"prompt_n": 5, "prompt_ms": prompt_ms, "predicted_n": predicted}
    figures |= {"draft_n": 16, "draft_n_accepted": accepted}
    return json.dumps({"timings": figures, **more}) + "\n"


def test_drafts_that_llama_cpp_accepted_after_the_end_are_a_finding_and_no_steps():
    found = diagnose(read(timings(5, 8, 9.0) * 6))
    assert (found.reading.num_accepted_tokens, found.reading.num_draft_tokens) == (48, 96)
    assert found.reading.num_steps is None
    (words,) = [one.words for one in found.suspects if one.name == "after_end"]
    assert "6 of the responses" in words
    whole = read(timings(9, 8, 9.0))  # one step, whose own token the limit cut off
    assert (whole.num_steps, whole.num_after_end) == (1, 0)
    log = "eval time = 30.0 ms / 5 tokens\ndraft acceptance = 0.5 (8 accepted / 16 generated)\n"
    assert "after_end" in [one.name for one in diagnose(read(log)).suspects]
    mixed = diagnose(read(timings(5, 8, 9.0) + timings(20, 9, 8.0)))
    assert (mixed.reading.num_steps, mixed.reading.num_draft_tokens) == (10, 16)
    assert "after_end" in [one.name for one in mixed.suspects]


LAST = {"stop": True}, {"choices": [{"finish_reason": "length"}]}
"""How llama.cpp marks the last part of a response, by its own address and by OpenAI's."""


@given(st.lists(st.tuples(st.sampled_from(LAST), st.integers(0, 3), st.integers(1, 9))))
def test_parts_of_a_streamed_response_are_one_report_and_equal_responses_are_several(answers):
    """The prompt and its time are always the same."""
    text, others = timings(20, 9, 9.0, id="a") * 3, {"stop": False, "choices": [{}]}
    for last, parts, accepted in answers:
        more = {name: others[name] for name in last}
        text += "".join(timings(9 + part, 4, 9.0, **more) for part in range(parts))
        text += timings(30, accepted, 9.0, **last)
    assert read(text).num_accepted_tokens == 9 + sum(accepted for *_, accepted in answers)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([1, 2, 8]))))
def test_speeds_of_sglang_are_compared_at_equal_loads_only(lines):
    """Drafts are worth twice the speed at every load."""
    text = "".join(
        f"Decode batch, #running-req: {load},{' accept len: 2.50,' * drafts}"
        f" gen throughput (token/s): {20 * load**0.5 * (1 + drafts)}\n"
        for drafts, load in [(True, 4), *lines]
    )
    drafted, plain = ({load for drafts, load in lines if drafts == kind} for kind in (True, False))
    found = diagnose(read(text)).measured_speedup
    assert found == (pytest.approx(2) if drafted & plain else None)


def test_a_locale_s_commas_are_decimal_points():
    log = samples.LLAMACPP_SERVER_WORDS
    commas = log.replace(".", ",")
    assert commas != log
    assert read(commas) == read(log)


@pytest.mark.parametrize(
    "text", [samples.VLLM_LOG, samples.LLAMACPP_TIMINGS, samples.SGLANG_LOG, OPENVINO, OLLAMA]
)
def test_the_rule_behind_the_figures_is_stated_or_said_to_be_unknown(text):
    found = diagnose(read(text))
    engine = found.reading.engine
    rule = caveats(found)[0]
    assert rule.startswith(RULES[engine]) if engine in RULES else "is not known here" in rule
    assert engine in rule


def test_logs_of_different_k_are_compared_by_alpha_and_the_share_is_explained():
    a, b = (diagnose(read(vllm_line([0.7**n for n in range(1, k + 1)], 2000))) for k in (3, 6))
    lines = compared(a, b)
    assert "k is 3 in A and 6 in B" in lines[0]
    assert "falls with k by arithmetic" in lines[0]
    expected = sum(0.7**n for n in range(1, 7)) / 6
    assert f"With k = 6, A would accept {expected:.1%}" in lines[0]
    assert "chance may explain the difference" in lines[1]
    better = compared(diagnose(read(vllm_line([0.9, 0.8, 0.7], 2000))), a)
    assert not any("arithmetic" in line for line in better)
    assert "The drafts of A fit its target better" in better[0]


def test_doctor_against_another_log_prints_both_and_the_difference(tmp_path):
    files = [tmp_path / "a.log", tmp_path / "b.log"]
    files[0].write_text(samples.VLLM_LOG, encoding="utf-8")
    files[1].write_text(OLLAMA, encoding="utf-8")
    command = ["doctor", str(files[0]), "--against", str(files[1])]
    done = run_program("naive_speculate.__main__", command)
    words = " ".join(done.stdout.split())
    for part in ("engine vLLM Ollama", "falls with k by arithmetic", "different rules"):
        assert part in words
    found = json.loads(run_program("naive_speculate.__main__", [*command, "--json"]).stdout)
    engines = [found[name]["reading"]["engine"] for name in ("diagnosis", "against")]
    assert engines == ["vLLM", "Ollama"]
    assert "cannot read" in refusal(
        "naive_speculate.__main__", ["doctor", str(files[0]), "--against", "no/such.log"]
    )
