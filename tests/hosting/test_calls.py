"""Hostile and malformed calls over HTTP: each gets an answer, in one line of the log, and the
server goes on serving."""

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from gradio_client import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.server import ROOT, Server
from naive_speculate import SamplingParams, Trace
from tests.hosting.http import SECRET, call, connected, get, logged, post

REST = [5, 0.7, 1.0, 1, 3, "speculative_sampling"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def client(server) -> Client:
    return Client(server.url, verbose=False)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(ANYTHING, max_size=9))
def test_no_call_makes_the_server_do_anything_but_answer(server, data):
    assert "Traceback" not in call(server.url, {"data": data})
    assert json.loads(get(server.url + "health"))["ready"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (["Once", "many"], "max_tokens must be a whole number"),
        (["Once", 2001], "max_tokens must be 1 to 2000, got 2001"),  # the host's limit
        (["Once", 8, "hot"], "temperature must be a number"),
        (["Once", 8, 0.7, 2.0], "top_p must be a number"),
        (["Once", 8, 0.7, 1.0, -2], "seed must be a whole number"),
        (["Once", 8, 0.7, 1.0, 1, 17], "num_draft_tokens must be 0 to 16, or auto, got 17"),
        (["Once", 8, 0.7, 1.0, 1, -1], "num_draft_tokens must be 0 to 16, or auto, got -1"),
        (["Once", 8, 0.7, 1.0, 1, "few"], "num_draft_tokens must be 0 to 16, or auto, got 'few'"),
        (["Once", 8, 0.7, 1.0, 1, 3, "<script>"], "verify_strategy must be one of"),
        (["Once", 8, 0.7, 1.0, 1, 3, "speculative_sampling", "oracle"], "drafter must be one of"),
        (["", 8], "prompt is empty"),
        (["word " * 5_000, 8], "more than the 1024 that the model can take"),
        (["a" * 950_000, 8], "prompt has 950000 characters, 32768 are allowed here"),
    ],
)
def test_a_call_with_a_wrong_field_is_answered_with_its_name(client, fields, said):
    with pytest.raises(Exception, match=said):
        client.predict(*fields, api_name="/generate")


def test_a_call_may_name_the_drafter_or_leave_it_to_the_pair_and_gets_the_library_s_events(
    client, bundled_pair, bundled_decoder
):
    own = bundled_pair.default_drafter
    for named, used in (
        ((), own),
        (("",), own),
        ((None,), own),
        (("prompt_lookup",), "prompt_lookup"),
        (("model",), "model"),
    ):
        job = client.submit("Once", 8, *REST[1:], *named, api_name="/generate")
        job.result()
        assert job.outputs()[0][0]["settings"]["drafter"] == used
    for window in (3, "auto"):
        job = client.submit(
            "Once", max_tokens=24, seed=11, num_draft_tokens=window, api_name="/generate"
        )
        job.result()
        found = Trace.from_jsonl(
            "\n".join(json.dumps(event) for events in job.outputs() for event in events)
        )
        assert found.settings["num_draft_tokens"] == window
        assert found.finished.finish_reason in ("length", "stop")
        assert found.started.cost_table or window == 3
        if window == 3:
            params = SamplingParams(
                temperature=0.7, max_tokens=24, seed=11, filter_words="classroom"
            )
            assert found.text == bundled_decoder.generate("Once", params, num_draft_tokens=3).text


def test_the_answer_of_a_call_is_its_text_and_figures_and_the_lists_before_are_the_other_events(
    client,
):
    job = client.submit("Once", max_tokens=24, seed=11, api_name="/generate")
    (answer,) = job.result()
    assert answer["kind"] == "finished"
    assert answer["metrics"]["num_accepted_draft_tokens"] > 0
    *streamed, last = job.outputs()
    assert last == [answer]
    events = [event for events in streamed for event in events]
    assert events[0]["kind"] == "started"
    assert "finished" not in {event["kind"] for event in events}
    kept = [one["text"] for one in events if one["kind"] in ("accepted", "resampled", "bonus")]
    assert answer["text"] == "".join(kept) != ""
    together = client.predict("Once", max_tokens=24, seed=11, events=True, api_name="/generate")
    assert [one["kind"] for one in together] == [one["kind"] for one in [*events, answer]]
    assert together[-1]["text"] == answer["text"]


def test_a_call_takes_the_samplers_and_guides_of_the_page(client):
    def settings_of(**fields):
        (started, *_) = client.predict(
            "Once", max_tokens=8, seed=1, events=True, api_name="/generate", **fields
        )
        return started["settings"]

    given = {"stop": ["\\n", "x\ny"], "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2}
    taken = settings_of(**given)
    assert {name: taken[name] for name in given} == given
    text = client.predict(
        "Once", guided="choice", guided_text=" a fox.\n a bear.", api_name="/generate"
    )[0]["text"]
    assert text in (" a fox.", " a bear.")
    with pytest.raises(Exception, match="guided_text is empty"):
        client.predict("Once", guided="json", api_name="/generate")


def test_the_documented_program_shows_the_run_and_raises_what_went_wrong(server, capsys):
    words = (ROOT / "docs/library.md").read_text(encoding="utf-8").partition("## The endpoint")[2]
    streaming, answer = re.findall(r"```python\n(.*?)```", words, re.DOTALL)
    program = (streaming + answer).replace("http://127.0.0.1:7860", server.url)
    exec(program, {})
    shown = capsys.readouterr().out
    assert "started" in shown
    assert float(shown.split()[-1]) >= 1  # tokens per target pass
    with pytest.raises(Exception, match="prompt is empty"):
        exec(program.replace("Once upon a time", ""), {})


def test_any_text_can_be_a_prompt_but_broken_text_and_a_program_may_leave_out_the_last_inputs(
    server,
):
    for prompt in (
        "<script>document.title = 'gone'</script><img src=x onerror=alert(1)>",
        "a\x00b\x07c\x1b[31md",
        "\u202eright to left\u202c \u2066isolated\u2069",
        "zero\u200bwidth\u200d\ufeff",
        "e" + "\u0301" * 100,
        "\U0010ffff\ufffe",
    ):
        assert '"finished"' in call(server.url, {"data": [prompt, *REST]})
    assert "character 5 is half of a surrogate pair" in call(
        server.url, {"data": ["half \ud83d", *REST]}
    )
    for left_out in range(
        len(REST)
    ):  # above all what an endpoint gained since the program was written
        assert '"finished"' in call(
            server.url, {"data": ["Once", 3, *REST[1 : len(REST) - left_out]]}
        )


@pytest.mark.parametrize(
    "path",
    [
        "gradio_api/file=/etc/passwd",
        "gradio_api/file=app.py",
        "gradio_api/file=README.md",
        f"gradio_api/file={ROOT}/app.py",
        f"gradio_api/file={ROOT}/assets/pair/target/config.json",
        "gradio_api/file=../../../../etc/passwd",
        "gradio_api/file=%2e%2e/%2e%2e/etc/passwd",
        "static/../../../../etc/passwd",
        "assets/..%2f..%2f..%2f..%2fetc/passwd",
        "theme.css/../app.py",
        "gradio_api/file=http://169.254.169.254/",
    ],
)
def test_no_file_can_be_read(server, path):
    with connected(server.url) as line:
        line.sendall(f"GET /{path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert answer.split(maxsplit=2)[1] in (b"400", b"403", b"404", b"405"), answer[:200]
    assert b"root:" not in answer
    assert b"import" not in answer


DATA: dict[str, Any] = {"data": ["Once", 3], "session_hash": "mine"}
SERVER: dict[str, Any] = {
    "data": "recorded",
    "component_id": 1,
    "fn_name": "trace",
    "session_hash": "mine",
}
MALFORMED: dict[str, tuple[str, Any]] = {
    "an unknown function": ("queue/join", DATA | {"fn_index": 99_999}),
    "no function": ("queue/join", DATA),
    "a negative function": ("queue/join", DATA | {"fn_index": -1}),
    "an endless function": ("queue/join", DATA | {"fn_index": 10**40}),
    "a function that is a text": ("queue/join", DATA | {"fn_index": SECRET}),
    "an unknown function, past the queue": ("run/predict", DATA | {"fn_index": 99_999}),
    "an unknown name, past the queue": ("run/nothing", DATA),
    "an unknown name by the old address": ("api/nothing", DATA),
    "an unknown name": (f"call/{quote(SECRET[:60])}", DATA),
    "an unknown name of version 2": ("call/v2/nothing", {"prompt": "Once"}),
    "an unknown argument": ("call/v2/generate", {"prompt": "Once", SECRET: 1}),
    "no argument": ("call/v2/generate", {}),
    "a list where arguments should be": ("call/v2/generate", [1]),
    "too few inputs": ("call/generate", {"data": []}),
    "too many inputs": ("call/generate", {"data": [1] * 50}),
    "a file of the server": (
        "call/generate",
        {"data": [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}]},
    ),
    "a file of another server": (
        "call/v2/generate",
        {"prompt": {"path": "http://x", "meta": {"_type": "gradio.FileData"}}},
    ),
    "a file within a list": (
        "call/generate",
        {"data": [[{"path": "http://x", "meta": {"_type": "gradio.FileData"}}]]},
    ),
    "data that are no list": ("call/generate", {"data": SECRET}),
    "no data": ("call/generate", {"prompt": SECRET}),
    "an unknown trigger": (
        "queue/join",
        {"data": [], "fn_index": 0, "session_hash": "mine", "trigger_id": 99_999},
    ),
    "a session that is a list": ("queue/join", DATA | {"session_hash": [], "fn_index": 0}),
    "a session with a long name": ("call/generate", DATA | {"session_hash": SECRET}),
    "no session": ("queue/join", {"data": [], "fn_index": 0}),
    "an unknown component": ("component_server", SERVER | {"component_id": 99_999}),
    "no component": ("component_server", SERVER | {"component_id": SECRET}),
    "a component that is a list": ("component_server", SERVER | {"component_id": []}),
    "a component without functions": ("component_server", SERVER | {"component_id": 1}),
    "a function that is none for visitors": ("component_server", SERVER | {"fn_name": "__init__"}),
    "a function that is a number": ("component_server", SERVER | {"fn_name": 3}),
    "no function of the server": ("component_server", {"data": 1}),
    "a list, to the server": ("component_server", [1]),
    "an endless list, to the server": ("component_server", b"[" * 100_000),
    "a session of the server with a long name": (
        "component_server",
        SERVER | {"session_hash": "x" * 5000},
    ),
    "nothing to be cancelled": ("cancel", {}),
    "a number to be reset": ("reset", {"event_id": 3}),
    "an unknown stream": ("stream/nothing", DATA),
    "an unknown stream to be closed": ("stream/nothing/close", {}),
    "no JSON": ("queue/join", b'{"data": ["' + SECRET.encode()),
    "no text": ("call/generate", b"\xff\xfe"),
    "nothing": ("run/generate", b""),
    "no object": ("call/generate", b"[]"),
    "a number as data": ("call/generate", b'{"data": 5}'),
    "an endless list as data": ("call/generate", b'{"data": [' + b"[" * 5000),
    "an endless list, to MCP": ("mcp/", b"[" * 100_000),
}


def answer(server: Server, path: str, body: Any = None) -> tuple[int, str]:
    """The status of a call, and what it is answered."""
    return post(f"{server.url}gradio_api/{path}", body)


READING = {
    "the results of an unknown session": ("queue/data?session_hash=nobody", None),
    "the results of no session": ("queue/data", None),
    "the results of a session without a name": ("queue/data?session_hash=", None),
    "the results of two sessions": ("queue/data?session_hash=nobody&session_hash=", None),
    "the results of an unknown call": ("call/generate/nothing", None),
    "the results of an unknown call of version 2": ("call/v2/generate/nothing", None),
    "the heartbeat of a session with a long name": ("heartbeat/" + "x" * 5000, None),
}


@pytest.mark.parametrize(
    ("path", "body"), [*MALFORMED.values(), *READING.values()], ids=[*MALFORMED, *READING]
)
def test_a_call_that_cannot_be_is_refused_in_one_line_without_its_words(server, path, body):
    before = len(server.log)
    status, said = answer(server, path, body)
    assert 400 <= status < 500, (status, said)
    assert len(said) < 1000
    shown = "/".join(path.split("/")[: 2 if path.startswith(("queue", "call/v2")) else 1])
    (line,) = logged(server, before)
    assert "Diary" not in said + line
    assert (
        line.endswith(f": {status}") if body is None else line == f"refused POST {shown}: {status}"
    )


def test_every_function_of_the_page_refuses_nonsense_without_a_trace_in_the_log(server):
    dependencies = json.loads(get(server.url + "config"))["dependencies"]
    numbers = [
        each["id"] for each in dependencies if not each["cancels"]
    ]  # Gradio gives these the session
    for path, statuses in (("queue/join", range(400, 500)), ("run/nothing", range(500))):
        before = len(server.log)
        for number in numbers:
            status, said = answer(
                server, path, {"data": [1] * 99, "fn_index": number, "session_hash": "mine"}
            )
            assert status in statuses, (number, status, said)
        lines = logged(server, before)
        assert all(line.startswith("refused POST ") for line in lines), lines
        assert len(lines) == len(numbers) if path == "queue/join" else len(lines) <= len(numbers)


@pytest.mark.parametrize("sent", [[], {}, 5, None, "nothing", [[]]], ids=str)
def test_no_function_of_the_page_fails_for_what_is_sent(server, sent):
    """Each is taken, or refused in a line; those that run in the browser alone are refused."""
    config = json.loads(get(server.url + "config"))
    before = len(server.log)
    for each in config["dependencies"]:
        call = {
            "data": [sent] * len(each["inputs"]),
            "fn_index": each["id"],
            "event_data": sent,
            "session_hash": "mine",
        }
        trigger = {"trigger_id": each["targets"][0][0]} if each["targets"] else {}
        status, said = answer(server, "queue/join", call | trigger)
        assert status < 500, (each["id"], said)
        assert each["backend_fn"] or each["cancels"] or status >= 400, each["id"]
    lines = logged(server, before)
    assert all(line.startswith("refused POST ") for line in lines), lines
