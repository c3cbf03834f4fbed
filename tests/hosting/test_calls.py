"""Hostile input over HTTP: each call gets an answer, and the server goes on serving."""

import json
import re
from pathlib import Path

import pytest
from gradio_client import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hosting.http import call, connected, get

ROOT = Path(__file__).resolve().parents[2]


REST = [5, 0.7, 1.0, 1, 3, "speculative_sampling"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def client(server) -> Client:
    return Client(server.url, verbose=False)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(ANYTHING, max_size=9))
def test_no_call_makes_the_server_do_anything_but_answer(server, data):
    assert "Traceback" not in call(server.url, {"data": data})
    assert json.loads(get(server.url + "health"))["ready"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (["Once", "many"], "max_tokens must be a whole number"),
        (["Once", 2001], "max_tokens may be at most 2000 on this page"),  # the host's limit
        (["Once", 8, "hot"], "temperature must be a number"),
        (["Once", 8, 0.7, 2.0], "top_p must be a number"),
        (["Once", 8, 0.7, 1.0, -2], "seed must be a whole number"),
        (["Once", 8, 0.7, 1.0, 1, 17], "num_draft_tokens may be at most 16 on this page, got 17"),
        (["Once", 8, 0.7, 1.0, 1, "few"], "num_draft_tokens must be a whole number, got 'few'"),
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


def test_a_call_may_name_what_drafts_or_leave_it_and_the_window_to_the_pair(client, bundled_pair):
    own = bundled_pair.default_drafter
    for named, used in (((), own), (("",), own), ((None,), own), (("prompt_lookup",), "prompt_lookup"), (("model",), "model")):
        job = client.submit("Once", 8, *REST[1:], *named, api_name="/generate")
        job.result()
        assert job.outputs()[0][0]["settings"]["drafter"] == used
    job = client.submit("Once", 12, num_draft_tokens="auto", seed=1, api_name="/generate")
    job.result()
    started, *_, finished = [event for events in job.outputs() for event in events]
    assert started["settings"]["num_draft_tokens"] == "auto"
    assert started["cost_table"]
    assert finished["finish_reason"] in ("length", "stop")


def test_the_documented_program_shows_the_run_and_raises_what_went_wrong(server, capsys):
    (program,) = re.findall(
        r"```python\n(from gradio_client.*?)```", (ROOT / "docs/library.md").read_text(encoding="utf-8"), re.DOTALL
    )
    program = program.replace("http://127.0.0.1:7860", server.url)
    exec(program, {})
    assert "started" in capsys.readouterr().out
    with pytest.raises(Exception, match="prompt is empty"):
        exec(program.replace("Once upon a time", ""), {})


def test_any_text_can_be_a_prompt_but_broken_text(server):
    for prompt in (
        "<script>document.title = 'gone'</script><img src=x onerror=alert(1)>",
        "a\x00b\x07c\x1b[31md",
        "\u202eright to left\u202c \u2066isolated\u2069",
        "zero\u200bwidth\u200d\ufeff",
        "e" + "\u0301" * 100,
        "\U0010ffff\ufffe",
    ):
        assert '"finished"' in call(server.url, {"data": [prompt, *REST]})
    assert "character 5 is half of a surrogate pair" in call(server.url, {"data": ["half \ud83d", *REST]})


def test_a_program_may_leave_out_the_last_inputs(server):
    """What an endpoint gained since the program was written, above all."""
    for left_out in range(len(REST)):
        assert '"finished"' in call(server.url, {"data": ["Once", 3, *REST[1 : len(REST) - left_out]]})


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
