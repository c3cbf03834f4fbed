"""What Hugging Face Spaces and a container need."""

import inspect
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import gradio
import pytest
import yaml

import app
from naive_speculate import SamplingParams, Trace
from naive_speculate.known import KNOWN
from naive_speculate.serving import Request, SoloEngine, Unavailable
from ui.host.zero import MOST_SECONDS, duration, on_zero_gpu

ROOT = Path(__file__).resolve().parents[2]


def front_matter() -> dict[str, Any]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    assert block
    found: dict[str, Any] = yaml.safe_load(block[1])
    return found


def test_the_space_s_card_fits_the_documented_schema():
    """https://huggingface.co/docs/hub/spaces-config-reference"""
    card = front_matter()
    colors = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert card["sdk"] == "gradio"
    assert {card["colorFrom"], card["colorTo"]} <= colors
    assert (ROOT / card["app_file"]).is_file()
    assert len(card["short_description"]) <= 60
    assert re.fullmatch(r"3\.\d+(\.\d+)?", card["python_version"])
    assert len(card["emoji"]) <= 2
    known = {"title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "python_version", "app_file", "license"}
    assert set(card) <= known | {"short_description", "tags", "pinned", "models", "preload_from_hub"}
    assert [entry.split()[0] for entry in card["preload_from_hub"]] == [KNOWN["smollm2"].target]
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert re.search(rf"^gradio(\[\w+\])?=={re.escape(card['sdk_version'])}$", pins, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert card["python_version"] >= project["requires-python"].removeprefix(">=")
    assert card["license"] == "apache-2.0"


def test_no_file_of_the_space_is_too_large_for_the_hub_s_review():
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
    copied = [name for step, rest in steps if step == "COPY" for name in rest.split()[:-1] if not name.startswith("--")]
    assert all((ROOT / name).exists() for name in copied)
    assert {"app.py", "naive_speculate", "ui", "assets"} <= set(copied)
    command = json.loads(next(rest for step, rest in steps if step == "CMD"))
    assert command[:2] == ["python", "app.py"]
    app.arguments(command[2:])
    assert next(rest for step, rest in steps if step == "USER") != "root"


def test_a_run_asks_zero_gpu_for_time_by_its_length():
    short, long = (Request("a", SamplingParams(max_tokens=n)) for n in (40, 400))
    assert duration(short) < duration(long, "flag") < duration(Request("a", SamplingParams(max_tokens=10**6))) == MOST_SECONDS
    assert duration(Request("a", SamplingParams(max_tokens=None))) == MOST_SECONDS


def test_decoding_is_wrapped_by_the_package_of_zero_gpu(tiny_decoder):
    """Without a ZeroGPU the wrapper hands the function back, which has to be a generator for it to stream."""
    engine = SoloEngine(tiny_decoder, wrap=on_zero_gpu)
    assert inspect.isgeneratorfunction(engine._decode)
    trace = Trace(event for events in engine.submit(Request([1, 2], SamplingParams(max_tokens=9, seed=1))) for event in events)
    assert trace.token_ids == tiny_decoder.generate([1, 2], SamplingParams(max_tokens=9, seed=1)).token_ids


def test_what_zero_gpu_says_to_a_visitor_arrives_as_plain_words():
    def refused(request, flag):
        yield from ()
        raise gradio.Error("No GPU &amp; no time: <a href='x'>subscribe</a>", title="ZeroGPU quota exceeded")

    with pytest.raises(Unavailable, match=r"^ZeroGPU quota exceeded: No GPU & no time: subscribe$"):
        list(on_zero_gpu(refused)(Request([1]), "flag"))
