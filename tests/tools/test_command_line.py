"""The command line, as a user runs it, and when it is interrupted or cannot write."""

import argparse
import contextlib
import fcntl
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import fields
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_speculate import SamplingParams, Trace, VerifyStrategy
from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.models.load import EXECUTORS
from naive_speculate.pair import BUNDLED_PAIR
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.tools import command_line
from naive_speculate.tools.bench import command as bench
from naive_speculate.tools.doctor import command as doctor
from tests.engine_samples import VLLM_LOG
from tests.programs import refusal, run_program

PROMPT = "Once upon a time there was"


@pytest.fixture(scope="module")
def small(small_pair):
    return ["--target", str(small_pair[0]), "--draft", str(small_pair[1])]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_program("naive_speculate.__main__", arguments)


ASKED = (
    "--max-tokens",
    "9",
    "--seed",
    "3",
    "--temperature",
    "0.7",
    "--logprobs",
    "2",
    "--prompt-logprobs",
    "1",
)


@pytest.fixture(scope="module")
def expected(small_decoder):
    return small_decoder.generate(
        PROMPT, SamplingParams(max_tokens=9, seed=3, temperature=0.7, logprobs=2, prompt_logprobs=1)
    )


def test_json_prints_the_events_with_the_requested_logprobs_and_nothing_else(small, expected):
    done = run("generate", PROMPT, *small, *ASKED, "--json")
    assert done.returncode == 0
    trace = Trace.from_jsonl(done.stdout)
    assert (trace.text, trace.token_ids, trace.finished.finish_reason) == (
        expected.text,
        expected.token_ids,
        "length",
    )
    found = [list(event.logprobs) for event in trace if event.kind in OUTPUT_KINDS]
    assert found == [list(entry) for entry in expected.logprobs]
    assert [entry[0] for entry in found] == trace.token_ids
    prompt = trace.finished.prompt_logprobs
    assert prompt[0] is None
    assert [list(entry) for entry in prompt[1:]] == [
        list(entry) for entry in expected.prompt_logprobs[1:]
    ]


def test_into_a_pipe_goes_the_generated_text_with_logprobs_after_it(small, expected, monkeypatch):
    assert run("generate", PROMPT, *small, *ASKED[:6]).stdout == expected.text + "\n"
    monkeypatch.setenv("COLUMNS", "160")  # a line per token
    done = run("generate", PROMPT, *small, *ASKED)
    text, prompt, output = done.stdout.split("\nLog-probabilities: ")
    assert text == expected.text + "\n"
    prompt, output = prompt.splitlines(), output.splitlines()
    assert (prompt[0].strip(), output[0].strip()) == ("prompt", "output")
    assert (
        prompt[1].split() == output[1].split() == ["token", "logprob", "rank", "most", "probable"]
    )
    for line, entry in zip(output[2:], expected.logprobs, strict=True):
        own, *_ = entry.values()
        assert line.startswith(repr(own.token))
        assert f" {own.logprob:.4f} " in line
        for other in entry.values():
            assert f"{other.token!r} {other.logprob:.2f}" in line
    assert len(prompt) - 2 == len(expected.prompt_logprobs) - 1


def test_with_chat_the_prompt_is_put_into_the_tokenizer_s_template(small_pair, tmp_path):
    target = tmp_path / "target"
    shutil.copytree(small_pair[0], target)
    template = "{% for message in messages %}Q: {{ message.content }}\nA:{% endfor %}"
    (target / "chat_template.jinja").write_text(template)
    options = ["--target", str(target), "--draft", str(small_pair[1]), "--temperature", "0"]
    asked, written = (
        run("generate", *prompt, *options, "--max-tokens", "9", "--json").stdout
        for prompt in (["Who?", "--chat"], ["Q: Who?\nA:"])
    )
    assert Trace.from_jsonl(asked).token_ids == Trace.from_jsonl(written).token_ids


def test_it_takes_every_sampling_parameter(small):
    options = {
        "n": "2", "best-of": "3", "presence-penalty": "0.5", "frequency-penalty": "0.2",
        "repetition-penalty": "1.1", "temperature": "0.9", "top-p": "0.95", "top-k": "40",
        "min-p": "0.01", "seed": "5", "stop": "zebra", "stop-token-ids": "5,6", "bad-words": "cat",
        "max-tokens": "12", "min-tokens": "2", "logprobs": "2", "prompt-logprobs": "1",
        "truncate-prompt-tokens": "5", "logit-bias": '{"7": -3}', "guided-regex": "[a-z ]{5,60}",
        "num-draft-tokens": "auto", "verify-strategy": "block_verification",
        "drafter": "prompt_lookup", "filter-words": "classroom",
    }  # fmt: skip
    flags = [
        "--include-stop-str-in-output",
        "--ignore-eos",
        "--no-skip-special-tokens",
        "--no-spaces-between-special-tokens",
    ]
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    done = run("generate", PROMPT, *small, "--json", *flags, *given)
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


def test_all_logprobs_and_no_limit_of_tokens_are_taken(small, small_decoder):
    most = small_decoder.admission.max_positions
    room = ("--truncate-prompt-tokens", str(most - 8), "--max-tokens", "none", "--ignore-eos")
    done = run("generate", "word " * most, *small, *room, "--logprobs", "-1", "--json")
    trace = Trace.from_jsonl(done.stdout)
    assert len(trace.token_ids) == 8
    for event in trace:
        if event.kind in OUTPUT_KINDS:
            assert len(event.logprobs) == small_decoder.admission.vocab_size


def test_help_names_strategies_drafters_and_defaults():
    said = " ".join(run("generate", "--help").stdout.split())
    for name in (*VerifyStrategy, *DRAFTERS, *EXECUTORS):
        assert name in said
    assert "typical_acceptance is lossy" in said
    assert "greedy_match is as at temperature 0" in said
    assert "Nothing ends the generation before this many tokens" in said
    for field in fields(SamplingParams):  # its meaning, not its name alone
        option = field.name.replace("_", "-")
        assert not re.search(rf"--(no-)?{option} (\S+ )?(off: )?{field.name} ", said), option
    for option, default in {
        "--num-draft-tokens N": "5",
        "--verify-strategy STRATEGY": "speculative_sampling",
        "--drafter DRAFTER": "the pair's own",
        "--max-tokens N": "128",
        "--temperature X": "1.0",
        "--top-k N": "-1",
        "--logprobs N": "none",
        "--target M": "the bundled pair",
        "--device D": "auto",
    }.items():
        described = said.rpartition(f" {option} ")[2].partition(" --")[0]
        assert f"default: {default})" in described, option


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", ""], "prompt is empty"),
        (["generate", "x", "--max-tokens", "few"], "must be a whole number or none, got 'few'"),
        (
            ["generate", "x", "--top-p", "1.5"],
            "--top-p must be a number, above 0 and at most 1, got 1.5",
        ),
        (
            ["generate", "x", "--num-draft-tokens", "-1"],
            "--num-draft-tokens must be 'auto' or from 0 to 64, got -1",
        ),
        (
            ["generate", "x", "--num-draft-tokens", "few"],
            "must be a whole number or auto, got 'few'",
        ),
        (
            ["generate", "x", "--tree", "4x"],
            "--tree must be numbers of children by depth, such as '4x2x1', got '4x'",
        ),
        (["generate", "x", "--verify-strategy", "luck"], "--verify-strategy must be one of"),
        (
            ["generate", "x", "--target", "/no/such/folder"],
            "--target='/no/such/folder': there is no such folder",
        ),
        (["generate", "x", "--target", "./docs"], "is not a model: the folder has no config.json"),
        (
            ["generate", "x", "--n=2", "--best-of=1"],
            "--best-of must be at least n, got --best-of=1 and --n=2",
        ),
        (
            ["generate", "--top-p=1.5", "--", r"--a\d"],
            "--top-p must be a number, above 0 and at most 1, got 1.5",
        ),
        (
            ["generate", "x", "--chat"],
            "--chat needs a chat template, and this pair's tokenizer has",
        ),
        (["generate", "x", "--device", "toaster"], "--device='toaster' is not available"),
        (["generate", "x", "--guided-regex", "("], "guided_decoding regex does not parse"),
        (["generate", "x", "--logit-bias", "7"], "must be JSON"),
        (["generate"], "PROMPT"),
        (["dance"], "dance"),
    ],
)
def test_bad_input_is_one_line_on_standard_error_and_status_2(small, arguments, message):
    models = (
        small
        if arguments[:2] in (["generate", "x"], ["generate", ""]) and "--target" not in arguments
        else []
    )
    assert message in refusal("naive_speculate.__main__", [*arguments, *models])


def test_a_run_that_ends_in_an_error_says_why_and_is_not_called_a_success(small):
    done = run("generate", PROMPT, *small, "--guided-regex", "[a-z]+", "--allowed-token-ids", "11")
    assert done.returncode == 1
    assert "guided_decoding and allowed_token_ids have no token in common" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


PARSERS = {
    "generate": lambda: command_line._parser(["generate"]),
    "bench": bench._parser,
    "doctor": doctor._parser,
}
PARSERS = {name: cache(made) for name, made in PARSERS.items()}
MANY = ["9" * 5000, "[" * 5000, '{"1": 1' + "0" * 400 + "}"]
ODD = st.text(max_size=40) | st.sampled_from(
    ["--5", "-", "-5", "1e5", "²", "٣", "nan", "None", "1,,2", "{}", *MANY]
)


def options_of(command: str) -> list[argparse.Action]:
    parser = PARSERS[command]()
    own = next(
        (
            a.choices["generate"]
            for a in parser._actions
            if isinstance(a, argparse._SubParsersAction)
        ),
        parser,
    )
    return [action for action in own._actions if action.option_strings and action.type is not None]


@pytest.mark.parametrize("command", PARSERS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_option_names_what_is_inside(command, data):
    """Whatever an option is given, it is taken or refused in one line that names the option and
    no function of ours."""
    assert not [
        action.option_strings for action in options_of(command) if action.type in (int, float)
    ]
    action, text = data.draw(st.sampled_from(options_of(command))), data.draw(ODD)
    arguments = [
        *(["generate", PROMPT] if command == "generate" else []),
        f"{action.option_strings[0]}={text}",
    ]
    said, status = io.StringIO(), 0
    with contextlib.redirect_stderr(said):
        try:
            PARSERS[command]().parse_args(arguments)
        except SystemExit as ended:
            status = ended.code
    if status:
        assert status == 2
        assert said.getvalue().count("\n") == 1
        assert f"argument {action.option_strings[0]}: must be" in said.getvalue()
        assert len(said.getvalue()) < 250


GENERATE = [
    "generate",
    "Once upon a time",
    "--ignore-eos",
    "--target",
    str(BUNDLED_PAIR / "draft"),
]  # the smaller model


@pytest.mark.parametrize(
    "forget",
    [
        ("torch", "transformers", "naive_speculate"),
        ("naive_speculate.models.llama.onnx_session",),
        (),
    ],
)
def test_ctrl_c_while_it_loads_and_while_it_decodes_is_one_line_and_status_130(tmp_path, forget):
    """In a copy of this process: Ctrl-C comes when it imports the first module that it forgot,
    or after its first line."""
    read, write = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        fcntl.fcntl(
            write, fcntl.F_SETPIPE_SZ, 4096
        )  # it prints more, so that it waits for its reader

    def interrupt(name: str, *_: object) -> None:
        if name in forget[:1]:
            os.kill(os.getpid(), signal.SIGINT)

    def run() -> None:
        os.dup2(write, 1)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), (tmp_path / "said").open("w")
        for name in [
            name for name in sys.modules if name in forget or name.partition(".")[0] in forget
        ]:
            del sys.modules[name]
        sys.meta_path.insert(0, SimpleNamespace(find_spec=interrupt))
        sys.exit(
            import_module("naive_speculate.__main__").main(
                [*GENERATE, "--json", "--max-tokens", "none"]
            )
        )

    process = get_context("fork").Process(target=run)
    process.start()
    os.close(write)
    with os.fdopen(read) as output:
        printed = output.readline()
        if not forget:
            os.kill(process.pid, signal.SIGINT)
        printed += output.read()
    process.join()
    assert (process.exitcode, (tmp_path / "said").read_text()) == (
        130,
        "naive_speculate: interrupted\n",
    )
    assert (
        (Trace.from_jsonl(printed).finished.finish_reason == "cancelled")
        if not forget
        else (printed == "")
    )


FULL = "naive_speculate: standard output: No space left on device\n"


@pytest.mark.parametrize("arguments", [["--json"], ["--logprobs", "1"], ["--help"]])
def test_a_full_disk_is_one_line_and_status_2_whatever_is_written(arguments):
    done = run_program(
        "naive_speculate.__main__",
        [*GENERATE, "--max-tokens", "3", *arguments],
        stdout=Path("/dev/full"),
    )
    assert (done.returncode, done.stderr) == (2, FULL)


GONE = "naive_speculate: standard output: Broken pipe\n"


def test_a_closed_reader_is_one_line_and_status_2(monkeypatch):
    """Of a process: nothing is added while it ends."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "naive_speculate", "doctor"]
    done = subprocess.run(command, input=VLLM_LOG, stdout=write, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, GONE)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    done = run_program(
        "naive_speculate.__main__",
        [*GENERATE, "--max-tokens", "3"],
        stdout=Path(f"/dev/fd/{write}"),
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (2, GONE)
