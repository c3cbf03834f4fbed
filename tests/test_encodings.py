"""What a program reads is UTF-8 and has lines that end with \\n, whatever the locale, and no letter
but \\n ends a line. What people read never breaks off."""

import ast
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from naive_speculate import Trace
from naive_speculate.tools.arguments import lines_of_file
from naive_speculate.tools.bench.suite import read_suite
from naive_speculate.tools.prove.plan import Record, Settings, requests
from naive_speculate.tools.prove.server import Answer
from tests.engine_samples import VLLM_LOG
from tests.programs import run_program

NO_LINE_ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"]
"""Letters at which `str.splitlines` splits."""
ENCODINGS = ["cp1252", "ascii", "utf-8"]


def printed(encoding: str, command: str, *arguments: str, stdin: str = "") -> tuple[int, bytes]:
    """Exit status and output, as on Windows: with a code page, and with lines that end with
    \\r\\n."""
    file = io.BytesIO()
    output = io.TextIOWrapper(file, encoding=encoding, newline="\r\n")
    module = command if "." in command else "naive_speculate.__main__"
    told = arguments if "." in command else [command, *arguments]
    done = run_program(module, told, stdin=stdin.encode(), output=output)
    output.flush()
    return done.returncode, file.getvalue()


@pytest.fixture(scope="module")
def small(small_pair):
    return ["--target", str(small_pair[0]), "--draft", str(small_pair[1]), "--max-tokens", "3"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Files with a prompt and two continuations."""
    folder = tmp_path_factory.mktemp("texts")
    paths = [folder / name for name in ("p.txt", "a.txt", "b.txt")]
    for path, text in zip(paths, ("Un café", " 日本 α", " α 日本"), strict=True):
        path.write_text(text, encoding="utf-8")
    return ["--prompt-file", *map(str, paths)]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_trace_that_is_printed_opens_whatever_the_locale(small, tmp_path, encoding):
    asked = ("Un café 日本 🎉", *small, "--temperature", "0", "--json")
    status, output = printed(encoding, "generate", *asked)
    (tmp_path / "run.jsonl").write_bytes(output)
    assert status == 0
    assert b"\r" not in output
    assert Trace.load(tmp_path / "run.jsonl").started.prompt == asked[0]


def test_the_text_alone_goes_to_a_file_in_utf_8(small, small_decoder):
    ids = ",".join(map(str, small_decoder.pair.tokenizer.encode("日")))
    asked = ("日本", *small, "--temperature", "0", "--ignore-eos", "--allowed-token-ids", ids)
    status, output = printed("utf-8", "generate", *asked)
    assert status == 0
    assert not output.isascii()
    assert printed("cp1252", "generate", *asked) == (0, output)


@pytest.mark.parametrize("command", ["doctor", "differ"])
def test_json_is_the_same_in_every_locale(small_pair, texts, command):
    of_differ = ["--target", str(small_pair[0]), *texts]
    arguments = [*(of_differ if command == "differ" else []), "--json"]
    outputs = [printed(name, command, *arguments, stdin=VLLM_LOG) for name in ENCODINGS]
    assert outputs == [outputs[0]] * 3
    assert json.loads(outputs[0][1])
    assert b"\r" not in outputs[0][1]


@pytest.mark.parametrize("command", ["doctor", "differ", "naive_speculate.naive"])
def test_what_people_read_is_whole_in_a_locale_without_its_letters(small_pair, texts, command):
    models = ["--target", str(small_pair[0])]
    arguments = {
        "doctor": [],
        "differ": [*models, *texts],
        "naive_speculate.naive": ["日本", *models, "--draft", str(small_pair[1]), "--seed=1"],
    }[command]
    status, whole = printed("utf-8", command, *arguments, stdin=VLLM_LOG)
    again, output = printed("cp1252", command, *arguments, stdin=VLLM_LOG)
    assert again == status <= 1
    assert output.count(b"\n") == whole.count(b"\n")
    last = whole.decode().split("\r\n")[-2].encode("cp1252", errors="replace")
    assert output.split(b"\r\n")[-2].split() == last.split()


def test_as_a_program_too(tmp_path):
    """Without the coercion of the C locale to UTF-8, which Python does not do elsewhere."""
    log = tmp_path / "log.txt"
    log.write_text(VLLM_LOG, encoding="utf-8")
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for locale in (bare, bare | {"PYTHONIOENCODING": "cp1252"}):
        command = [sys.executable, "-m", "naive_speculate", "doctor", str(log)]
        done = subprocess.run(command, env=os.environ | locale, capture_output=True, check=True)
        assert b"vLLM" in done.stdout
        assert not done.stderr


def test_answers_to_continue_from_may_hold_any_letter_and_end_in_the_middle_of_one(tmp_path):
    path, shape = tmp_path / "answers.jsonl", (("Once",), (1.0,), 9, 2, 1, 4, 1)
    settings = Settings("http://127.0.0.1:1/v1", "m", {}, *shape)
    record = Record(path, settings)
    sent = list(requests(settings))[: len(NO_LINE_ENDS)]
    for request, letter in zip(sent, NO_LINE_ENDS, strict=True):
        text = f"a{letter}b"
        record.add(request, [Answer(text, (text,), (((text, -0.1),),), False)])
    assert Record(path, settings).answers == record.answers
    record.add(list(requests(settings))[len(sent)], [Answer("é", ("é",), (), False)])
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex("é".encode()) + 1])
    assert Record(path, settings).answers == {
        one.number: record.answers[one.number] for one in sent
    }


@pytest.mark.parametrize("letter", NO_LINE_ENDS[:-1])
def test_only_a_line_break_ends_a_prompt_and_a_question(tmp_path, letter):
    path = tmp_path / "lines.txt"
    path.write_text(f"one{letter}prompt\r\nanother\n\n", encoding="utf-8", newline="")
    assert lines_of_file(str(path)) == [f"one{letter}prompt", "another"]
    question = {"category": "writing", "turns": [f"one{letter}question"]}
    line = json.dumps(question, ensure_ascii=False)
    path.write_text(f"\ufeff{line}\n\n{line}", encoding="utf-8")
    assert [one.text for one in read_suite(path)] == question["turns"] * 2


def test_every_text_file_that_the_package_writes_has_the_line_end_of_json_lines():
    files = [*Path("naive_speculate").rglob("*.py")]
    calls = [
        (str(path), ast.unparse(node))
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "write_text"
    ]
    assert calls
    assert [call for call in calls if "encoding='utf-8', newline='\\n'" not in call[1]] == []
