"""The command line, as a user runs it."""

import json
import subprocess
import sys

import pytest

from naive_speculate import SamplingParams, Trace
from tests.programs import run_program

PROMPT = "Once upon a time there was"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_program("naive_speculate.__main__", arguments)


def test_json_prints_the_events_and_nothing_else(bundled_decoder):
    done = run("generate", PROMPT, "--max-tokens", "20", "--seed", "3", "--temperature", "0.7", "--json")
    assert done.returncode == 0
    trace = Trace.from_jsonl(done.stdout)
    assert trace.finished.finish_reason == "length"
    expected = bundled_decoder.generate(PROMPT, SamplingParams(max_tokens=20, seed=3, temperature=0.7))
    assert trace.text == expected.text
    assert trace.token_ids == expected.token_ids


def test_into_a_pipe_goes_the_generated_text_alone(bundled_decoder):
    command = [sys.executable, "-m", "naive_speculate", "generate", PROMPT, "--max-tokens", "15", "--temperature", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    expected = bundled_decoder.generate(PROMPT, SamplingParams(max_tokens=15, temperature=0)).text
    assert done.stdout == expected + "\n"


def test_it_takes_every_sampling_parameter():
    options = {
        "n": "2", "best-of": "3", "presence-penalty": "0.5", "frequency-penalty": "0.2", "repetition-penalty": "1.1",
        "temperature": "0.9", "top-p": "0.95", "top-k": "40", "min-p": "0.01", "seed": "5", "stop": "zebra",
        "stop-token-ids": "5,6", "bad-words": "cat", "max-tokens": "12", "min-tokens": "2", "logprobs": "2",
        "prompt-logprobs": "1", "truncate-prompt-tokens": "5", "logit-bias": '{"7": -3}', "guided-regex": "[a-z ]{5,60}",
        "num-draft-tokens": "auto", "verify-strategy": "block_verification", "drafter": "prompt_lookup",
    }  # fmt: skip
    flags = ["--include-stop-str-in-output", "--ignore-eos", "--no-skip-special-tokens", "--no-spaces-between-special-tokens"]
    done = run(
        "generate", PROMPT, "--json", *flags, *(part for name, value in options.items() for part in (f"--{name}", value))
    )
    assert done.returncode == 0, done.stderr
    started = [json.loads(line) for line in done.stdout.splitlines() if '"kind":"started"' in line]
    assert len(started) == 2
    settings = started[0]["settings"]
    for name, value in options.items():
        if name not in ("guided-regex", "logit-bias", "stop-token-ids", "stop", "bad-words"):
            assert str(settings[name.replace("-", "_")]) == value
    assert settings["stop"] == ["zebra"]
    assert settings["stop_token_ids"] == [5, 6]
    assert settings["logit_bias"] == {"7": -3.0}
    assert settings["guided_decoding"] == {"regex": "[a-z ]{5,60}"}
    assert settings["ignore_eos"] is True
    assert settings["skip_special_tokens"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", ""], "prompt is empty"),
        (["generate", "x", "--top-p", "1.5"], "top_p must be a number, above 0 and at most 1, got 1.5"),
        (["generate", "x", "--num-draft-tokens", "-1"], "num_draft_tokens must be 'auto' or from 0 to 64, got -1"),
        (["generate", "x", "--num-draft-tokens", "few"], "must be a whole number or auto, got 'few'"),
        (["generate", "x", "--verify-strategy", "luck"], "verify_strategy must be one of"),
        (["generate", "x", "--target", "/no/such/folder"], "target='/no/such/folder': there is no such folder"),
        (["generate", "x", "--device", "toaster"], "device='toaster' is not there"),
        (["generate", "x", "--guided-regex", "("], "guided_decoding regex does not parse"),
        (["generate", "x", "--logit-bias", "7"], "must be JSON"),
        (["generate"], "PROMPT"),
        (["dance"], "dance"),
    ],
)
def test_bad_input_is_one_line_on_standard_error_and_status_2(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    done = run("generate", "x", "--target", str(tmp_path))
    assert done.returncode == 2
    assert "is not a model: the folder has no config.json" in done.stderr
