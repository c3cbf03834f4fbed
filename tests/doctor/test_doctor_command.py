"""`python -m naive_speculate doctor < log`."""

import gzip
import json
import subprocess
import sys

import pytest

from naive_speculate.doctor import diagnose, estimated, read
from tests import engine_samples as samples
from tests.programs import refusal, run_program


def doctor(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run_program("naive_speculate.__main__", ["doctor", *options], stdin=text.encode("utf-16-le"))  # as PowerShell writes


def test_it_prints_alpha_places_windows_and_suspects_and_as_json_the_diagnosis_and_nothing_else():
    sizes = ("--draft-size", "0.6B", "--target-size", "8B")
    done = doctor(samples.VLLM_LOG, *sizes)
    assert done.returncode == 0, done.stderr
    for words in ("0.724", "82.2%", "62.2%", "Best k: 5", "pays if a draft costs less than", "k is too large", "ee4ceaae5953"):
        assert words in done.stdout
    done = doctor(samples.SGLANG_META_INFO, *sizes, "--json")
    assert json.loads(done.stdout) == diagnose(read(samples.SGLANG_META_INFO), estimated("0.6B", "8B")).to_dict()


def test_files_are_read_together(tmp_path):
    files = [tmp_path / "decode log.txt", tmp_path / "older.gz"]
    files[0].write_bytes(samples.VLLM_LOG.encode("utf-16"))
    files[1].write_bytes(gzip.compress(samples.VLLM_LOG.encode()))
    done = run_program("naive_speculate.__main__", ["doctor", "--json", *map(str, files)])
    assert json.loads(done.stdout)["reading"]["num_draft_tokens"] == 2 * 259


def test_a_profile_has_the_rates_by_index_of_each_category(tmp_path):
    other = samples.VLLM_REQUEST.replace('"id"', '"category": "chat", "id"')
    file = tmp_path / "profile.json"
    done = doctor(samples.VLLM_REQUEST_DETAILED + other, "--profile", str(file), "--speed", "20", "--plain-speed", "25")
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
        (samples.VLLM_LOG, ["--draft-cost=1", "--verify-cost=1,nan"], "--verify-cost must be positive, got nan"),
        (samples.VLLM_LOG, ["--draft-size=", "--target-size="], "--draft-size: must be a size such as 0.6B or 350M, got ''"),
        (samples.VLLM_LOG, ["--draft-size=1B", "--target-size=-8B"], "--target-size: must be a size such as"),
        (samples.VLLM_LOG, ["--draft-size", "1B"], "--target-size"),
        (samples.VLLM_LOG, ["--verify-cost", "1,2"], "--draft-cost"),
        (samples.VLLM_LOG, ["--draft-cost", "0.1", "--verify-cost", "one"], "must be a number"),
        (samples.VLLM_LOG, ["--num-draft-tokens", "0"], "positive whole number"),
        (samples.VLLM_LOG, ["--plain-speed", "inf"], "must be a positive number, got 'inf'"),
        ("", ["no/such/log.txt"], "cannot read 'no/such/log.txt': No such file or directory"),
        (samples.VLLM_LOG, ["--profile", "no/such/folder.json"], "--profile: cannot write 'no/such/folder.json'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(text, options, words):
    assert words in refusal("naive_speculate.__main__", ["doctor", *options], stdin=text.encode())


def test_light_commands_import_no_library_that_they_do_not_need():
    """Looked at in a fresh process."""
    look = (
        "import contextlib, io, sys\n"
        "from naive_speculate.__main__ import main\n"
        "import app\n"
        "for run, argv in ((main, ['--help']), (main, ['doctor', '--help']), (app.main, ['--help'])):\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        run(argv)\n"
        "main(['doctor'])\n"
        "print({'torch', 'transformers', 'gradio', 'numpy'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", look], input=samples.VLLM_LOG, capture_output=True, text=True, check=True)
    assert ("Best k" in done.stdout, done.stdout.splitlines()[-1], done.stderr) == (True, "set()", "")
