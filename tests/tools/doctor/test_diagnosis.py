"""What follows from an engine's account, and `python -m naive_speculate doctor < log`."""

import gzip
import json
import random
import subprocess
import sys
from statistics import fmean, pstdev

import pytest

from naive_speculate.speculate.theory import expected_tokens, speedup
from naive_speculate.tools.doctor import Reading, diagnose, estimated, given, read
from tests import engine_samples as samples
from tests.programs import refusal, run_program


def account(rates: list[float], /, **more: object) -> Reading:
    values = {
        "accepted_per_step": sum(rates),
        "drafted_per_step": float(len(rates)),
        "rates": tuple(rates),
        "num_steps": 1000,
    }
    return Reading("vLLM", "a sample", "here", **values | more)  # type: ignore[arg-type]


def same(alpha: float, k: int) -> list[float]:
    return [alpha ** (place + 1) for place in range(k)]


@pytest.mark.parametrize("alpha", [0.0, 0.35, 0.8, 1.0])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_alpha_is_found_from_places_and_from_means_alone(alpha, k):
    from_places = diagnose(account(same(alpha, k)))
    from_means = diagnose(account(same(alpha, k), rates=()))
    assert from_places.alpha == pytest.approx(alpha)
    assert from_means.alpha == pytest.approx(alpha, abs=1e-9)
    assert from_means.alpha_assumes_one
    assert not from_places.alpha_assumes_one
    tokens = (
        expected_tokens(alpha, k) + expected_tokens(alpha, k + 1)
    ) / 2  # windows of two lengths
    assert diagnose(
        account([], accepted_per_step=tokens - 1, drafted_per_step=k + 0.5)
    ).alpha == pytest.approx(alpha, abs=1e-9)


def test_where_places_are_alike_windows_are_the_theorys():
    costs = given(0.06, (1.0, 1.02, 1.05, 1.09, 1.14, 1.2))
    found = diagnose(account(same(0.8, 5)), costs)
    for window in found.windows:
        assert window.tokens == pytest.approx(expected_tokens(0.8, window.k))
        assert window.speedup == pytest.approx(
            speedup(0.8, window.k, 0.06, costs.verify_cost(window.k))
        )
        assert window.measured == (window.k <= 5)
    assert found.best_k == max(range(17), key=lambda k: speedup(0.8, k, 0.06, costs.verify_cost(k)))
    assert found.speedup == pytest.approx(speedup(0.8, 5, 0.06, costs.verify_cost(5)))


def test_a_shorter_window_is_weighed_with_its_indices_rates_and_at_break_even_as_fast_as_plain():
    found = diagnose(account([0.9, 0.3, 0.1]), given(0.2))
    assert [window.tokens for window in found.windows[:3]] == pytest.approx([1.9, 2.2, 2.3])
    assert found.best_k == 1
    for window in diagnose(account(same(0.6, 4))).windows:
        assert speedup(0.6, window.k, window.break_even_draft_cost) == pytest.approx(1)
    costs = given(0.3, (1.0, 1.1))
    for window in diagnose(account(same(0.6, 4)), costs).windows:
        if window.break_even_alpha is not None:
            assert speedup(
                window.break_even_alpha, window.k, 0.3, costs.verify_cost(window.k)
            ) == pytest.approx(1)


def test_costs_are_estimated_from_sizes():
    assert estimated("0.6B", "8B").draft == pytest.approx(0.075)
    assert estimated("500M", "0.07T").draft == pytest.approx(1 / 140)
    for size in ("", "big", "-1B", "0B", "1X"):
        with pytest.raises(ValueError, match="size"):
            estimated(size, "8B")
    for cost in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="draft_cost must be positive"):
            given(cost)
        with pytest.raises(ValueError, match="verify_cost must be positive"):
            given(0.1, (1.0, cost))


def test_the_error_of_alpha_is_the_spread_of_repeated_runs():
    chance, alphas, errors = random.Random(3), [], []
    for _ in range(300):
        kept = [next((place for place in range(4) if chance.random() > 0.7), 4) for _ in range(200)]
        found = diagnose(
            account([sum(k > place for k in kept) / 200 for place in range(4)], num_steps=200)
        )
        alphas.append(found.alpha)
        errors.append(found.alpha_error)
    assert fmean(errors) == pytest.approx(pstdev(alphas), rel=0.2)


MEANS = {"accepted_per_step": 1.7}
SUSPECTS = [  # rates by place, other figures, costs, and what is suspected
    ([0.3, 0.2, 0.15], {}, None, ["mismatch"]),
    ([], {"accepted_per_step": 0.4, "drafted_per_step": 4.0}, None, ["mismatch"]),
    ([0.85, 0.35, 0.2], {}, None, ["cliff"]),
    ([0.85, 0.72, 0.6], {}, None, []),
    ([0.85, 0.3, 0.1], {"drafted_per_step": 1.5}, None, ["short_windows"]),
    (same(0.6, 12), {}, given(0.1), ["k_too_large"]),
    (same(0.9, 2), {}, given(0.02), ["k_too_small"]),
    (same(0.6, 8), {}, None, ["k_too_large"]),
    (same(0.8, 4), {}, given(0.15), []),
    (
        [],
        MEANS | {"drafted_per_step": 1.75},
        given(0.02),
        [],
    ),  # the drafter ends windows, so that nothing is said of k
    ([], MEANS | {"drafted_per_step": 2.0}, given(0.02), ["k_too_small"]),
    (same(0.8, 4), {"requests_running": 64.0}, None, ["batch"]),
    (same(0.8, 4), {"requests_running": 8.0}, None, []),
    (same(0.6, 4), {}, given(0.1, (1.0, 3.0)), ["does_not_pay", "k_too_large"]),
]


@pytest.mark.parametrize(("rates", "more", "costs", "suspected"), SUSPECTS)
def test_what_is_suspected_follows_from_the_figures(rates, more, costs, suspected):
    found = diagnose(account(rates, **more), costs)
    assert [suspect.name for suspect in found.suspects] == suspected
    assert all(suspect.next for suspect in found.suspects)


def test_a_suspect_names_its_causes_and_the_best_window():
    (mismatch,) = diagnose(account([0.3, 0.2, 0.15])).suspects
    assert ("temperature" in mismatch.words, "template" in mismatch.words) == (True, True)
    long = diagnose(account(same(0.6, 12)), given(0.1))
    assert f"{long.best_k} is best" in long.suspects[0].words
    assert (
        "with these costs 0 is best"
        in diagnose(account(same(0.6, 4)), given(0.1, (1.0, 3.0))).suspects[1].words
    )


def test_a_window_that_no_one_stated_can_be_given():
    reading = read(samples.VLLM_LOG_FIRST)
    assert diagnose(reading).alpha is None
    found = diagnose(reading, num_draft_tokens=4)
    assert expected_tokens(found.alpha, 4) == pytest.approx(1 + 250 / 400 * 4)
    with pytest.raises(ValueError, match="num_draft_tokens must be 1 or more, got 0"):
        diagnose(reading, num_draft_tokens=0)


def doctor(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run_program(
        "naive_speculate.__main__", ["doctor", *options], stdin=text.encode("utf-16-le")
    )  # as PowerShell writes


def test_it_prints_alpha_places_windows_and_suspects_and_as_json_the_diagnosis_and_nothing_else():
    sizes = ("--draft-size", "0.6B", "--target-size", "8B")
    done = doctor(samples.VLLM_LOG, *sizes)
    assert done.returncode == 0, done.stderr
    for words in (
        "0.724",
        "82.2%",
        "62.2%",
        "Best k: 5",
        "pays if a draft costs less than",
        "k is too large",
        "ee4ceaae5953",
    ):
        assert words in done.stdout
    done = doctor(samples.SGLANG_META_INFO, *sizes, "--json")
    assert (
        json.loads(done.stdout)
        == diagnose(read(samples.SGLANG_META_INFO), estimated("0.6B", "8B")).to_dict()
    )


def test_files_are_read_together(tmp_path):
    files = [tmp_path / "decode log.txt", tmp_path / "older.gz"]
    files[0].write_bytes(samples.VLLM_LOG.encode("utf-16"))
    files[1].write_bytes(gzip.compress(samples.VLLM_LOG.encode()))
    done = run_program("naive_speculate.__main__", ["doctor", "--json", *map(str, files)])
    assert json.loads(done.stdout)["reading"]["num_draft_tokens"] == 2 * 259


def test_a_profile_has_the_rates_by_index_of_each_category(tmp_path):
    other = samples.VLLM_REQUEST.replace('"id"', '"category": "chat", "id"')
    file = tmp_path / "profile.json"
    done = doctor(
        samples.VLLM_REQUEST_DETAILED + other,
        "--profile",
        str(file),
        "--speed",
        "20",
        "--plain-speed",
        "25",
    )
    assert "measured speedup" in done.stdout
    assert "does not pay: 0.80 times" in " ".join(done.stdout.split())
    assert "Measure next: " in done.stdout
    profile = json.loads(file.read_text(encoding="utf-8"))
    assert [rate["index"] for rate in profile["rates"]] == [0, 1, 2]
    assert profile["rates"][0]["marginal"] == pytest.approx((6 + 4) / (8 + 43))
    code, chat = profile["categories"]["code"], profile["categories"]["chat"]
    assert [rate["conditional"] for rate in code["rates"]] == pytest.approx([6 / 8, 3 / 4, 1.0])
    assert [rate["marginal"] for rate in chat["rates"]] == pytest.approx([4 / 43, 3 / 43, 3 / 43])
    assert (code["num_steps"], chat["num_steps"]) == (8, 43)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("hello", [], "supported: vLLM's"),
        (samples.VLLM_LOG, ["--draft-cost", "0"], "--draft-cost must be positive"),
        (
            samples.VLLM_LOG,
            ["--draft-cost=1", "--verify-cost=1,nan"],
            "--verify-cost must be positive, got nan",
        ),
        (
            samples.VLLM_LOG,
            ["--draft-size=", "--target-size="],
            "--draft-size: must be a size such as 0.6B or 350M, got ''",
        ),
        (
            samples.VLLM_LOG,
            ["--draft-size=1B", "--target-size=-8B"],
            "--target-size: must be a size such as",
        ),
        (samples.VLLM_LOG, ["--draft-size", "1B"], "--target-size"),
        (samples.VLLM_LOG, ["--verify-cost", "1,2"], "--draft-cost"),
        (samples.VLLM_LOG, ["--draft-cost", "0.1", "--verify-cost", "one"], "must be a number"),
        (samples.VLLM_LOG, ["--num-draft-tokens", "0"], "positive whole number"),
        (samples.VLLM_LOG, ["--plain-speed", "inf"], "must be a positive number, got 'inf'"),
        ("", ["no/such/log.txt"], "cannot read 'no/such/log.txt': No such file or directory"),
        (
            samples.VLLM_LOG,
            ["--profile", "no/such/folder.json"],
            "--profile: cannot write 'no/such/folder.json'",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(text, options, words):
    assert words in refusal("naive_speculate.__main__", ["doctor", *options], stdin=text.encode())


def test_light_commands_import_no_library_that_they_do_not_need():
    """Looked at in a fresh process."""
    look = (
        "import contextlib, io, sys\nfrom naive_speculate.__main__ import main\nimport app\nfor"
        " run, argv in ((main, ['--help']), (main, ['doctor', '--help']), (app.main,"
        " ['--help'])):\n    with contextlib.redirect_stdout(io.StringIO()),"
        " contextlib.suppress(SystemExit):\n        run(argv)\nmain(['doctor'])\nprint({'torch',"
        " 'transformers', 'gradio', 'numpy'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", look],
        input=samples.VLLM_LOG,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("Best k" in done.stdout, done.stdout.splitlines()[-1], done.stderr) == (
        True,
        "set()",
        "",
    )
