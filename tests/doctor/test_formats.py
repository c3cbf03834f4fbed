"""Engines' words are read as their sources mean them."""

import pytest

from naive_speculate.doctor import diagnose, read
from naive_speculate.events import Event, EventKind
from naive_speculate.events.metrics import summarize
from tests import engine_samples as samples

# format: engine, steps, drafts, accepted, rates of places
EXPECTED = {
    "VLLM_LOG": ("vLLM", 37, 259, 92, (0.757, 0.622, 0.432, 0.324, 0.189, 0.108, 0.054)),
    "VLLM_LOG_WITHOUT_THROUGHPUT": ("vLLM", 354, 1062, 626, (0.802, 0.551, 0.415)),
    "VLLM_LOG_FIRST": ("vLLM", None, 400, 250, ()),
    "VLLM_PROMETHEUS": ("vLLM", 1000, 3000, 1740, (0.8, 0.56, 0.38)),
    "LLAMACPP_PROMETHEUS": ("llama.cpp", 720, 2160, 1640, (640 / 720, 540 / 720, 460 / 720)),
    "LLAMACPP_SERVER_LOG": ("llama.cpp", 690, 1207, 1186, (1.0,)),
    "LLAMACPP_SERVER_TRACE": ("llama.cpp", 20, 60, 37, (0.85, 0.6, 0.4)),
    "LLAMACPP_STATISTICS": ("llama.cpp", 200, 600, 360, (0.8, 0.6, 0.4)),
    "LLAMACPP_TIMINGS": ("llama.cpp", 46, 108, 81, ()),
    "LLAMACPP_EXAMPLE": ("llama.cpp", 48, 192, 80, ()),
    "SGLANG_META_INFO": ("SGLang", 20, 80, 42, (0.85, 0.65, 0.45, 0.15)),
    "SGLANG_META_INFO_FIRST": ("SGLang", 20, 80, 42, ()),
    "SGLANG_LOG": ("SGLang", None, None, None, ()),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_counts_are_those_of_the_engine(name):
    reading = read(getattr(samples, name))
    engine, steps, drafted, accepted, rates = EXPECTED[name]
    assert reading.engine == engine
    assert reading.num_steps == (None if steps is None else pytest.approx(steps, rel=1e-3))
    assert (reading.num_draft_tokens, reading.num_accepted_tokens) == (drafted, accepted)
    assert reading.rates == pytest.approx(rates)
    if steps is not None:
        assert reading.accepted_per_step == pytest.approx(accepted / steps, rel=1e-3)


@pytest.mark.parametrize("name", EXPECTED)
def test_other_lines_around_it_change_nothing(name):
    noise = 'INFO started {not json} [\n{"level": "info", "msg": "ready"}\n'
    assert read(noise + getattr(samples, name) + "done }\n") == read(getattr(samples, name))


def test_every_sample_has_an_expectation():
    assert {name for name in vars(samples) if name.isupper()} == set(EXPECTED)


def test_what_cannot_be_known_is_said():
    assert any("single places" in line for line in read(samples.LLAMACPP_TIMINGS).unknown)
    assert any("first place alone" in line for line in read(samples.LLAMACPP_SERVER_LOG).unknown)
    assert any("does not count the steps" in line for line in read(samples.VLLM_LOG_FIRST).unknown)
    assert any("does not count the steps" in line for line in read(samples.VLLM_LOG).derived)
    assert any("trees" in line for line in read(samples.SGLANG_META_INFO).unknown)


def test_lines_of_a_log_count_with_the_steps_they_stand_for():
    few = "SpecDecoding metrics: Accepted: 10 tokens, Drafted: 20 tokens, Per-position acceptance rate: 0.600, 0.400\n"
    many = "SpecDecoding metrics: Accepted: 180 tokens, Drafted: 180 tokens, Per-position acceptance rate: 1.000, 1.000\n"
    idle = "SpecDecoding metrics: Accepted: 0 tokens, Drafted: 0 tokens, Per-position acceptance rate: nan, nan\n"
    reading = read(few + many + idle)
    assert reading.num_steps == pytest.approx(100)
    assert reading.rates == pytest.approx((0.96, 0.94))


def test_a_line_of_vllm_whose_windows_are_short_gives_the_steps_by_its_rates():
    line = "SpecDecoding metrics: Accepted: 60 tokens, Drafted: 150 tokens, Per-position acceptance rate: 0.500, 0.100\n"
    reading = read(line)
    assert reading.num_steps == pytest.approx(100)
    assert reading.drafted_per_step == pytest.approx(1.5)


def test_counters_read_twice_count_what_is_between():
    later = samples.VLLM_PROMETHEUS
    for before, after in (("1000.0", "1500.0"), ("3000.0", "4500.0"), ("1740.0", "2140.0"), (" 800.0", " 1100.0")):
        later = later.replace(before, after)
    reading = read(samples.VLLM_PROMETHEUS + later.replace(" 560.0", " 650.0").replace(" 380.0", " 390.0"))
    assert (reading.num_steps, reading.num_draft_tokens, reading.num_accepted_tokens) == (500, 1500, 400)
    assert reading.rates == pytest.approx((0.6, 0.18, 0.02))
    with pytest.raises(ValueError, match="started anew"):
        read(later + samples.VLLM_PROMETHEUS)


def test_of_a_streamed_answer_the_last_account_counts():
    chunk = 'data: {"text": "x", "meta_info": {"id": "a", "completion_tokens": %d, "spec_verify_ct": %d, '
    chunk += '"spec_num_correct_drafts": %d, "spec_num_proposed_drafts": %d}}\n'
    reading = read(chunk % (6, 2, 4, 6) + chunk % (9, 3, 6, 9) + "data: [DONE]\n")
    assert (reading.num_steps, reading.num_accepted_tokens, reading.num_draft_tokens) == (3, 6, 9)
    timings = 'data: {"id": "c", "timings": {"prompt_n": 5, "prompt_ms": 1.5, "predicted_n": %d, "draft_n": %d, '
    timings += '"draft_n_accepted": %d}}\n'
    reading = read(timings % (4, 3, 2) + timings % (11, 9, 6))
    assert (reading.num_steps, reading.num_accepted_tokens, reading.num_draft_tokens) == (4, 6, 9)


def test_several_answers_count_together():
    other = samples.SGLANG_META_INFO.replace("5f1c", "77").replace("[3, 4, 4, 6, 3]", "[20]").replace(": 42", ": 0")
    reading = read(f"[{samples.SGLANG_META_INFO}, {other}]")
    assert (reading.num_steps, reading.num_draft_tokens, reading.num_accepted_tokens) == (40, 160, 42)
    assert reading.rates == pytest.approx((0.425, 0.325, 0.225, 0.075))


def test_the_account_that_tells_most_is_read():
    assert read(samples.VLLM_LOG_FIRST + samples.VLLM_PROMETHEUS).format == "Prometheus counters"
    assert read(samples.LLAMACPP_TIMINGS + samples.LLAMACPP_SERVER_TRACE).rates == (0.85, 0.6, 0.4)


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
    lines = [f"{name}_drafts_total 10", f"{name}_draft_tokens_total 40", f"{name}_accepted_tokens_total {sum(kept)}"]
    lines += [f'{name}_accepted_tokens_per_pos_total{{position="{place}"}} {count}' for place, count in enumerate(kept)]
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
        ("SpecDecoding metrics: Accepted: 0 tokens, Drafted: 0 tokens", "nothing was drafted"),
        ("vllm:spec_decode_num_draft_tokens_total many", "must be a number"),
        ("vllm:spec_decode_num_draft_tokens_total Inf", "must be a number"),
        ('{"draft_n": -1, "draft_n_accepted": 0}', "draft_n must be a whole number"),
        ('{"draft_n": 1e999, "draft_n_accepted": 0}', "draft_n must be a whole number"),
        ('{"draft_n": 4}', "draft_n_accepted must be"),
        ('{"spec_verify_ct": 3}', "completion_tokens"),
        ('{"spec_verify_ct": 3, "spec_accept_histogram": [1, 1]}', "counts 2 steps"),
        ('{"spec_verify_ct": 3, "spec_num_correct_drafts": [], "spec_num_proposed_drafts": 9}', "accepted drafts must be"),
        ("SpecDecoding metrics: Accepted: 9 tokens, Drafted: 9 tokens, Per-position acceptance rate: 0.2, 0.9", "at place 2"),
        ('{"a":' * 5000 + '"spec_verify_ct"', "has none of the formats"),
        ("[" * 100_000 + '"spec_verify_ct"', "has none of the formats"),
        ("SpecDecoding metrics: Accepted: 9 tokens, Drafted: 9 tokens, Per-position acceptance rate: 1.2.3", "1.2.3"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text, words):
    with pytest.raises(ValueError, match=r".") as error:
        diagnose(read(text))
    assert words in str(error.value)
    assert "\n" not in str(error.value)
