"""What the operator can decide and sees: the environment, whose runs are filtered, the real
server's addresses and log."""

import json
import re
import subprocess
import sys
import threading
from dataclasses import replace
from queue import SimpleQueue

import pytest
from gradio_client import Client

from benchmarks.server import ROOT
from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import Event, EventKind
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.serving import Load, LocalEngine, Request
from naive_speculate.serving.requests import MAX_ROWS
from naive_speculate.serving.visit import Visit
from naive_speculate.speculate.verify import VERIFIERS
from naive_speculate.tools.doctor import read
from tests.hosting.http import call_tool, get
from tests.programs import refusal, run_program
from tests.tiny import save_model, tiny_llama
from ui.host.catalog import load_catalog
from ui.host.configuration import BUNDLED, USUAL, Configuration, PairChoice, read_configuration
from ui.host.operations import Counters, log_runs
from ui.run.api import PARAMETERS

SMOLLM2_FIRST = (PairChoice("SmolLM2", "smollm2", later=True), PairChoice(BUNDLED, on_demand=True))
LISTED = (
    "bundled; Qwen 3 = Qwen/Qwen3-8B + Qwen/Qwen3-0.6B ; Alone=/models/one; Both = a/b + c/d + e/f"
)
FOUR = (
    PairChoice(BUNDLED),
    PairChoice("Qwen 3", "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"),
    PairChoice("Alone", "/models/one"),
)
FOUR += (PairChoice("Both", "a/b", "c/d", "e/f"),)


@pytest.mark.parametrize(
    ("environ", "options", "pairs"),
    [
        ({}, {}, SMOLLM2_FIRST),
        ({"PAIRS": ""}, {}, SMOLLM2_FIRST),
        (
            {},
            {"target": "smollm2"},
            (PairChoice("smollm2", "smollm2"),),
        ),  # at once, since the operator wants it
        (
            {"PAIRS": "bundled; Chat = smollm2"},
            {},
            (PairChoice(BUNDLED), PairChoice("Chat", "smollm2")),
        ),
        ({"HEAD": "/a/head"}, {}, (PairChoice(BUNDLED, head="/a/head"),)),
        ({}, {"target": "a/b", "head": "c/d"}, (PairChoice("b", "a/b", None, "c/d"),)),
        ({"PAIRS": LISTED}, {}, FOUR),
    ],
)
def test_pairs_are_those_of_the_environment_and_the_options(environ, options, pairs):
    named = {f"NAIVE_SPECULATE_{name}": value for name, value in environ.items()}
    assert read_configuration(named, options) == Configuration(pairs)


def test_the_environment_decides_and_options_win():
    given = {
        "TARGET": "Qwen/Qwen3-8B", "DRAFT": "Qwen/Qwen3-0.6B", "DEVICE": "cuda:1",
        "DTYPE": "bfloat16", "WEIGHTS": "int8", "MAX_TOKENS": "300", "MAX_PROMPT_TOKENS": "2000",
        "QUEUE_SIZE": "7", "CONCURRENCY": "3", "FILTER_WORDS": "all", "MEASURING": "off",
    }  # fmt: skip
    environ = {f"NAIVE_SPECULATE_{name}": value for name, value in given.items()}
    pairs = (PairChoice("Qwen3-8B", "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"),)
    limits = {"max_tokens": 300, "max_prompt_tokens": 2000, "queue_size": 7, "concurrency": 3}
    expected = Configuration(
        pairs,
        device="cpu",
        dtype="bfloat16",
        weights="float32",
        filter_words="all",
        measuring="off",
        **limits,
    )
    options = {"dtype": None, "device": "cpu", "weights": "float32"}
    assert read_configuration(environ, options) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_TOKENS", "0"), ("MAX_TOKENS", "many"), ("MAX_TOKENS", "2049"),
        ("MAX_PROMPT_TOKENS", "-5"), ("QUEUE_SIZE", "1.5"), ("QUEUE_SIZE", "9" * 30),
        ("CONCURRENCY", "٣"), ("DEVICE", "toaster"), ("DTYPE", "float12"), ("WEIGHTS", "int3"),
        ("FILTER_WORDS", "some"), ("DRAFT", "only/a-draft"), ("PAIRS", "a; b"),
        ("PAIRS", "A=x+y; A=z+w"), ("PAIRS", ";"), ("HOSTS", "http://page.example/"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(name, value):
    with pytest.raises(ValueError, match=f"NAIVE_SPECULATE_{name}"):
        read_configuration({f"NAIVE_SPECULATE_{name}": value}, {})


def test_the_document_names_every_option_and_the_limits_of_numbers_are_those_it_states():
    document = (ROOT / "docs" / "hosting.md").read_text(encoding="utf-8")
    options = set(re.findall(r"--[a-z][a-z-]+", run_program("app", ["--help"]).stdout))
    assert not {option for option in options - {"--help"} if f"`{option}`" not in document}
    stated = re.findall(r"`(NAIVE_SPECULATE_\w+)` .* from ([\d,]+) to ([\d,]+)", document)
    assert len(stated) == 4
    for name, *limits in stated:
        low, high = (int(limit.replace(",", "")) for limit in limits)
        for number in (low, high):
            read_configuration({name: str(number)}, {})
        for number in (low - 1, high + 1):
            with pytest.raises(ValueError, match=name):
                read_configuration({name: str(number)}, {})


@pytest.mark.parametrize(
    ("environ", "options", "said"),
    [
        ({"NAIVE_SPECULATE_CONCURRENCY": "none"}, [], "NAIVE_SPECULATE_CONCURRENCY"),
        ({"NAIVE_SPECULATE_THREADS": "0"}, [], "NAIVE_SPECULATE_THREADS"),
        (
            {"GRADIO_SERVER_PORT": "http"},
            ["--port", "7999"],
            "GRADIO_SERVER_PORT must be a number from 1 to 65535, got 'http'",
        ),
        (
            {"NAIVE_SPECULATE_PAIRS": "bundled"},
            ["--head", "c/d"],
            "NAIVE_SPECULATE_PAIRS or a target, a draft and a head, not both",
        ),
        ({}, ["--dtype", "int3"], "--dtype"),
        ({}, ["--weights", "int3"], "--weights"),
        ({}, ["--target", "/no/such/folder"], "/no/such/folder"),
        *(
            ({}, ["--port", port], "--port: must be a number from 1 to 65535")
            for port in ("70000", "0", "-1", "http", "7" * 30)
        ),
        ({}, ["--ray-address", "10.0.0.1:6379"], "--engine ray"),
        ({}, ["--engine", "spark"], "invalid choice"),
    ],
)
def test_a_wrong_start_ends_with_one_line_and_status_2(environ, options, said, monkeypatch):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert said in refusal("app", options)


def test_so_it_does_as_a_program():
    ended = subprocess.run(
        [sys.executable, "app.py", "--port", "http"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
    assert ended.stderr.startswith("app.py: argument --port")


def test_two_pairs_of_a_folder_are_loaded_and_visitors_choose_among_these_only(small_pair):
    target, draft = map(str, small_pair)
    choices = (PairChoice("one", target, draft), PairChoice("again", target))
    catalog = load_catalog(
        Configuration(choices, device="cpu", max_prompt_tokens=16, max_tokens=50)
    )
    assert list(catalog.pairs) == ["one", "again"]
    assert all(served.measurable for served in catalog.pairs.values())  # both can be measured
    assert catalog.load().capacity == 2 * MAX_ROWS
    assert [catalog.of(name) for name in ("", "again")] == [*catalog.pairs.values()]
    for pair, request, said in (
        ("again", Request("a " * 19 + "a"), "4 more than the 16 allowed here"),
        ("../../etc", Request("Once"), r"pair must be one of one, again, got '\.\./\.\./etc'"),
        ("", Request("Once", SamplingParams(max_tokens=51)), "max_tokens must be 1 to 50, got 51"),
    ):
        with pytest.raises(ValueError, match=said):
            list(catalog.stream(pair, request, threading.Event()))
    catalog.close()
    assert not catalog.load().ready


# --- what the operator sees


def reported_as_traced(record: Visit, trace: Trace) -> None:
    """The figures of a run's record are those of its trace."""
    m, found = trace.metrics, record.summary.metrics
    assert (found.num_generated_tokens, record.prompt_tokens) == (m.num_generated_tokens, 3)
    assert found.num_draft_tokens == m.num_draft_tokens
    assert found.num_accepted_draft_tokens == m.num_accepted_draft_tokens
    assert sum(record.accepted_at) == m.num_accepted_draft_tokens
    assert record.outcome == trace.events[-1].finish_reason
    assert record.num_drafts == sum(bool(event.num_draft) for event in trace)
    assert record.num_drafts <= found.num_spec_steps
    assert 0 <= (record.wait_seconds or 0) <= (record.first_token_seconds or 0) <= record.seconds


def test_every_run_is_reported_and_prompts_are_logged_where_the_operator_wanted_them(caplog):
    """Runs may go on for as long as the test wants."""
    target, draft = (
        TransformersLanguageModel(tiny_llama(2, seed, positions=10**6)) for seed in (0, 1)
    )
    endless = LocalEngine(SpeculativeDecoder(ModelPair(target, draft)))
    records: SimpleQueue[Visit] = SimpleQueue()
    counters = Counters(endless.load)
    observers = [counters.count, log_runs(), records.put]  # the last sees that all have heard
    request = Request([1, 2, 3], SamplingParams(max_tokens=30, seed=4), num_draft_tokens=3)
    with caplog.at_level("INFO"):
        trace = Trace(
            event for events in Visit(request, observers).submit(endless) for event in events
        )
        forever = Request([4], SamplingParams(max_tokens=10**6, seed=1))
        left = Visit(forever, observers).submit(endless)
        next(left)
        left.close()
        # the engine ends the run after its current step
        first, second = records.get(timeout=300), records.get(timeout=60)
        with pytest.raises(ValueError, match="prompt is empty"):
            Visit(Request([]), observers).submit(endless)
        third = records.get(timeout=300)
    reported_as_traced(first, trace)
    assert (second.outcome, third.outcome) == ("abandoned", "refused")
    lines = [
        json.loads(record.message)
        for record in caplog.records
        if record.name == "naive_speculate.runs"
    ]
    assert [line["outcome"] for line in lines] == [first.outcome, "abandoned", "refused"]
    assert all("prompt" not in line for line in lines)
    everybody = Request([4], SamplingParams(n=endless.load().capacity, max_tokens=1))
    # begins when every place is free, also that of the run that was left
    list(endless.submit(everybody))
    text = counters.text().decode()
    tokens = sum(each.summary.metrics.num_generated_tokens for each in (first, second))
    for counted in (
        f"generation_tokens_total {float(tokens)}",
        f'request_success_total{{finished_reason="{first.outcome}"}} 1.0',
        'runs_failed_total{outcome="refused"} 1.0',
        "num_requests_running 0.0",
        (
            'spec_decode_num_accepted_tokens_per_pos_total{position="0"}'
            f" {float(first.accepted_at[0])}"
        ),
    ):
        assert f"naive_speculate:{counted}" in text
    with caplog.at_level("INFO"):
        logged = Request([7, 8], SamplingParams(max_tokens=2))
        list(Visit(logged, [log_runs(prompts=True)]).submit(endless))
    assert json.loads(caplog.records[-1].message)["prompt"] == [7, 8]
    endless.close()


def counted() -> str:
    """The counters after two runs of four steps."""
    found, run = (
        Counters(lambda: Load(True, 1, 2, 4)),
        Visit(Request("x"), seconds=2.0, outcome="stop"),
    )
    run.add(Event(EventKind.STARTED, prompt_token_ids=[1, 2, 3, 4, 5]), 0.1)
    for step, (drafted, accepted) in enumerate(((4, 3), (4, 1), (4, 1), (0, 0))):
        run.add(Event(EventKind.STEP, step=step, num_draft=drafted, num_accepted=accepted), 0.1)
    found.count(run)
    found.count(replace(run, outcome="error"))
    return found.text().decode()


def test_every_metric_has_the_prefix_and_a_line_in_the_document_and_the_doctor_reads_them():
    """The document maps them to vLLM's."""
    names = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", counted(), re.MULTILINE))
    names = {name for name in names if not name.endswith("_created")}
    assert names
    assert all(name.startswith("naive_speculate:") for name in names)
    document = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(naive_speculate:\w+)` \| \w+ \| .* \| (`vllm:\w+`|none) \|$", document, re.MULTILINE
    )
    assert {ours for ours, _ in rows} == names
    assert all(theirs in ("none", f"`vllm:{ours.partition(':')[2]}`") for ours, theirs in rows)
    reading = read(counted())
    assert (reading.engine, reading.requests_running) == ("Naive Speculate", 1)
    assert (reading.num_steps, reading.num_draft_tokens, reading.num_accepted_tokens) == (6, 24, 10)
    assert reading.rates == (1.0, 1 / 3, 1 / 3, 0.0)


def test_the_server_states_its_health_its_counters_and_each_run(server):
    url = server.url
    health = json.loads(get(url + "health"))
    seconds = health.pop("run_seconds")
    assert seconds is None or seconds > 0, "none before the first run has ended"
    quiet = {
        "running": 0,
        "waiting": 0,
        "capacity": 2 * MAX_ROWS,
        "replicas": 2,
        "reason": "",
        "stuck": False,
    }
    assert health == {"status": "ok", "ready": True} | quiet
    before = generated(url)
    job = Client(url, verbose=False).submit(
        "Once upon a time", max_tokens=12, seed=1213, api_name="/generate"
    )
    events = [event for some in job for event in some]  # the README's example
    assert [events[0]["kind"], events[-1]["kind"]] == ["started", "finished"]
    assert generated(url) == before + 12
    server.wait_for('"seed": 1213')
    (line,) = [json.loads(line) for line in server.log.splitlines() if '"seed": 1213' in line]
    assert (line["outcome"], line["tokens"]) == ("length", 12)
    assert "Once upon" not in server.log


def generated(url: str) -> float:
    """As many tokens as the server says that it has generated."""
    return float(
        re.findall(
            r"^naive_speculate:generation_tokens_total (.+)$", get(url + "metrics"), re.MULTILINE
        )[0]
    )


def test_a_language_model_gets_the_text_as_json_and_reads_what_each_parameter_may_be(server):
    tools, answer = call_tool(
        server.url, {"prompt": "Once upon a time", "max_tokens": 8, "seed": 1, "stop": ["zzz"]}
    )
    assert not answer.isError, answer
    (finished,) = json.loads(answer.content[0].text)
    assert finished["finish_reason"] == "length"
    assert finished["text"].strip()
    assert finished["metrics"]["num_generated_tokens"] == 8
    (tool,) = tools
    assert tool.name == "generate"
    assert tool.description.startswith("Continue a prompt")
    parameters = tool.inputSchema["properties"]
    assert list(parameters) == list(PARAMETERS)
    assert all(one["description"].endswith(".") for one in parameters.values()), parameters
    assert "0 to 16, or auto" in parameters["num_draft_tokens"]["description"]
    assert all(rule in parameters["verify_strategy"]["description"] for rule in VERIFIERS)
    assert "1 to 2000" in parameters["max_tokens"]["description"]


@pytest.mark.parametrize(
    ("chosen", "shipped", "other"),
    [
        ({}, "classroom", None),
        ({"filter_words": "all"}, "classroom", "classroom"),
        ({"filter_words": "none"}, None, None),
    ],
)
def test_the_host_decides_whose_runs_are_filtered_and_a_run_s_first_event_says_so(
    tmp_path, chosen, shipped, other
):
    """By default those of the pairs that ship."""
    save_model(tiny_llama(1, seed=0), tmp_path)
    catalog = load_catalog(
        Configuration((*USUAL, PairChoice("other", str(tmp_path))), device="cpu", **chosen)
    )
    filters = {name: served.filter_words for name, served in catalog.pairs.items()}
    assert filters == {"SmolLM2": shipped, BUNDLED: shipped, "other": other}
    delivered: SimpleQueue[list[Event] | Exception | None] = SimpleQueue()
    request = Request(
        "Once upon a time there was", SamplingParams(max_tokens=4, seed=1), num_draft_tokens=0
    )
    catalog.start("other", request, threading.Event(), delivered.put)
    started = Trace(catalog.stream("other", request, threading.Event())).started
    assert [
        event.settings["filter_words"] for event in (started, delivered.get(timeout=300)[0])
    ] == [other] * 2
    while delivered.get(timeout=300) is not None:
        pass
    catalog.close()
