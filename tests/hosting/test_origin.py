"""Where scripts come from, headers and `/metrics`; and what Hugging Face Spaces and a container
need."""

import inspect
import json
import re
import tomllib
from dataclasses import asdict
from io import BytesIO
from typing import Any
from urllib.request import urlopen

import gradio
import pytest
import yaml
from gradio import route_utils
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request as Asked
from starlette.testclient import TestClient

from benchmarks.server import ROOT
from naive_speculate import SamplingParams, Trace
from naive_speculate.models.known import KNOWN
from naive_speculate.serving import Load, Request, SoloEngine, Unavailable
from tests.hosting.http import ask, get
from ui.host.catalog import load_catalog
from ui.host.configuration import Configuration, PairChoice, read_configuration
from ui.host.limits import policy
from ui.host.operations import Counters, routes
from ui.host.options import arguments
from ui.host.process import trust
from ui.host.zero import MOST_SECONDS, duration, on_zero_gpu

HOSTILE: dict[str, dict[str, str]] = {
    "Host": {"Host": "evil.example"},
    "a forwarded host": {"X_Forwarded_Host": "evil.example"},
    "a forwarded host among others": {"X_Forwarded_Host": "evil.example, 127.0.0.1"},
    "a forwarded host with a user": {"X_Forwarded_Host": "127.0.0.1@evil.example"},
    "a forwarded host with a path": {"X_Forwarded_Host": "evil.example/127.0.0.1"},
    "Gradio's own": {"X_Gradio_Server": "https://evil.example"},
    "no address": {"X_Gradio_Server": "::::"},
    "no host": {"Host": "::::"},
    "brackets without an address": {"Host": "[1.1]"},
    "no forwarded host": {"X_Forwarded_Host": "[::::"},
}


@pytest.mark.parametrize(
    "path", ["", "config", "gradio_api/info", "gradio_api/openapi.json", "?embed=1"]
)
@pytest.mark.parametrize("headers", HOSTILE.values(), ids=HOSTILE)
def test_no_header_reaches_the_address_that_scripts_come_from(server, path, headers):
    status, said, _ = ask(server.url + path, **headers)
    assert status == 200
    assert "evil.example" not in said
    assert "::::" not in said


def test_a_link_to_the_page_shows_its_title_a_sentence_and_the_stage_and_nothing_of_gradio_s(
    server,
):
    page = get(server.url)
    tags = dict(
        re.findall(r'<meta (?:property|name)="((?:og|twitter):[^"]+)" content="([^"]*)"', page)
    )
    assert len(tags) == len(re.findall(r'"(?:og|twitter):', page))
    assert tags["og:title"] == "Naive Speculate"
    assert "drafts tokens" in tags["og:description"]
    assert tags["og:image"] == f"{server.url}previews/run.png"
    with urlopen(tags["og:image"]) as answer:
        picture = answer.read()
    size = (int(tags["og:image:width"]), int(tags["og:image:height"]))
    assert Image.open(BytesIO(picture)).size == size
    assert len(picture) < 100_000


def test_the_page_s_address_is_reported_where_its_name_is_known_and_slides_may_frame_it_embedded(
    server,
):
    assert json.loads(get(server.url + "config"))["root"] == server.url.rstrip("/")
    assert json.loads(ask(server.url + "config", Host="lan.example")[1])["root"] == ""
    framed = {
        query: ask(f"{server.url}?{query}")[2]["content-security-policy"]
        for query in ("embed=1", "embed=", "a=embed=1")
    }
    assert ["frame-ancestors" in said for said in framed.values()] == [False, True, True]


@pytest.mark.parametrize("path", ["", "config", "health", "no/such/page", "gradio_api/upload"])
def test_every_answer_says_what_a_browser_may_do_with_it(server, path):
    _, _, found = ask(server.url + path)  # whose names have no case
    assert found["x-content-type-options"] == "nosniff"
    assert found["referrer-policy"] == "same-origin"
    assert "frame-ancestors 'self' https://huggingface.co" in found["content-security-policy"]
    assert "'unsafe-inline'" not in found["content-security-policy"].split("style-src")[0]


def test_names_are_this_machine_s_the_space_s_and_the_operator_s(monkeypatch):
    monkeypatch.setenv("SPACE_HOST", "me-page.hf.space")
    monkeypatch.setattr(route_utils, "get_root_url", None)
    trust(
        read_configuration({"NAIVE_SPECULATE_HOSTS": "Page.example, 192.168.1.5"}, {}).hosts,
        "0.0.0.0",
    )
    roots = {
        "localhost:7860": "http://localhost:7860",
        "page.example": "http://page.example",
        "192.168.1.5:8000": "http://192.168.1.5:8000",
        "[::1]:7860": "http://[::1]:7860",
        "me-page.hf.space": "http://me-page.hf.space",
        "other.hf.space": "",
        "192.168.1.6": "",
    }
    assert {host: root(host) for host in roots} == roots
    assert (
        root("x", ("x-forwarded-host", "page.example"), ("x-forwarded-proto", "https"))
        == "https://page.example"
    )
    assert root("localhost", root_path="/deeper/") == "http://localhost/deeper"
    assert root("other", root_path="/deeper/") == "/deeper"
    assert root("other", root_path="https://page.example/deeper/") == "https://page.example/deeper"
    assert "img-src 'self' data: blob: https://huggingface.co" in policy("n")


def root(host: str, *more: tuple[str, str], root_path: str = "") -> str:
    headers = [(name.encode(), value.encode()) for name, value in (("host", host), *more)]
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": "/",
        "query_string": b"",
        "headers": headers,
    }
    return route_utils.get_root_url(Asked(scope), "/", root_path)


@pytest.mark.parametrize(
    ("metrics", "near", "far", "passed_on"),
    [("all", 200, 200, 200), ("local", 200, 403, 403), ("off", 404, 404, 404)],
)
def test_the_host_decides_who_reads_the_counters(metrics, near, far, passed_on):
    app = Starlette(routes=routes(Counters(lambda: Load(True, 0, 0, 1)), metrics))
    here, there = TestClient(app, client=("127.0.0.1", 5)), TestClient(app, client=("192.0.2.7", 5))
    assert here.get("/metrics").status_code == near
    assert there.get("/metrics").status_code == far
    assert here.get("/metrics", headers={"X-Forwarded-For": "192.0.2.7"}).status_code == passed_on
    assert there.get("/health").status_code == 200


def test_health_is_503_with_the_reason_while_no_run_can_start():
    stuck = Load(False, 1, 0, 1, reason="no progress", stuck=True)
    answer = TestClient(Starlette(routes=routes(Counters(lambda: stuck)))).get("/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"} | asdict(stuck))


def front_matter() -> dict[str, Any]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    assert block
    found: dict[str, Any] = yaml.safe_load(block[1])
    return found


def test_the_space_s_card_fits_the_schema_and_no_file_is_too_large_for_the_hub_s_review():
    """https://huggingface.co/docs/hub/spaces-config-reference"""
    card = front_matter()
    colors = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert (card["sdk"], card["license"]) == ("gradio", "apache-2.0")
    assert {card["colorFrom"], card["colorTo"]} <= colors
    assert (ROOT / card["app_file"]).is_file()
    assert (len(card["short_description"]) <= 60, len(card["emoji"]) <= 2) == (True, True)
    assert re.fullmatch(r"3\.\d+(\.\d+)?", card["python_version"])
    known = {
        "title",
        "emoji",
        "colorFrom",
        "colorTo",
        "sdk",
        "sdk_version",
        "python_version",
        "app_file",
        "license",
    }
    assert set(card) <= known | {
        "short_description",
        "tags",
        "pinned",
        "models",
        "preload_from_hub",
    }
    assert [entry.split()[0] for entry in card["preload_from_hub"]] == [KNOWN["smollm2"].target]
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert re.search(rf"^gradio(\[\w+\])?=={re.escape(card['sdk_version'])}$", pins, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert card["python_version"] >= project["requires-python"].removeprefix(">=")
    weights = list((ROOT / "assets").rglob("*.safetensors"))
    assert weights
    assert all(path.stat().st_size < 10_000_000 for path in weights)


def test_the_container_installs_and_starts_what_the_project_does():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert steps[0][0] == "FROM"
    assert steps[0][1].startswith(f"python:{front_matter()['python_version']}")
    run = " ".join(rest for step, rest in steps if step == "RUN")
    assert "-r requirements.txt" in run
    copied = [
        name
        for step, rest in steps
        if step == "COPY"
        for name in rest.split()[:-1]
        if not name.startswith("--")
    ]
    assert all((ROOT / name).exists() for name in copied)
    assert {"app.py", "naive_speculate", "ui", "assets"} <= set(copied)
    command = json.loads(next(rest for step, rest in steps if step == "CMD"))
    assert command[:2] == ["python", "app.py"]
    arguments(command[2:])
    assert next(rest for step, rest in steps if step == "USER") != "root"


def test_a_run_asks_zero_gpu_for_time_by_its_length():
    short, long = (Request("a", SamplingParams(max_tokens=n)) for n in (40, 400))
    assert (
        duration(short)
        < duration(long, "flag")
        < duration(Request("a", SamplingParams(max_tokens=10**6)))
        == MOST_SECONDS
    )
    assert duration(Request("a", SamplingParams(max_tokens=None))) == MOST_SECONDS


def test_decoding_is_wrapped_by_the_package_of_zero_gpu(tiny_decoder):
    """Without a ZeroGPU the wrapper hands the function back, which has to be a generator for it
    to stream."""
    engine = SoloEngine(tiny_decoder, wrap=on_zero_gpu)
    assert inspect.isgeneratorfunction(engine._decode)
    trace = Trace(
        event
        for events in engine.submit(Request([1, 2], SamplingParams(max_tokens=9, seed=1)))
        for event in events
    )
    assert (
        trace.token_ids
        == tiny_decoder.generate([1, 2], SamplingParams(max_tokens=9, seed=1)).token_ids
    )


def test_on_zero_gpu_a_pair_that_may_be_loaded_later_is_left_out_if_it_cannot_be(
    monkeypatch, small_pair
):
    import spaces  # noqa: F401 - before the variable is set, which is for its own machines

    monkeypatch.setenv("SPACES_ZERO_GPU", "1")
    target, draft = map(str, small_pair)
    choices = PairChoice("gone", "no/such/folder", later=True), PairChoice("small", target, draft)
    catalog = load_catalog(Configuration(pairs=choices, device="cpu"))
    assert list(catalog.pairs) == ["small"]
    assert type(catalog.of("").engine) is SoloEngine
    (notice,) = catalog.notices
    assert notice.startswith("gone cannot be loaded: ")
    catalog.close()
    with pytest.raises(ValueError, match="no/such/folder"):
        load_catalog(Configuration(pairs=(PairChoice("gone", "no/such/folder"),), device="cpu"))


def test_what_zero_gpu_says_to_a_visitor_arrives_as_plain_words():
    def refused(request, flag):
        yield from ()
        raise gradio.Error(
            "No GPU &amp; no time: <a href='x'>subscribe</a>", title="ZeroGPU quota exceeded"
        )

    with pytest.raises(Unavailable, match=r"^ZeroGPU quota exceeded: No GPU & no time: subscribe$"):
        list(on_zero_gpu(refused)(Request([1]), "flag"))
