"""`prove --endpoint` on transformers' server."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket

import pytest

from naive_speculate.__main__ import main
from naive_speculate.pair import BUNDLED_PAIR

pytestmark = pytest.mark.gguf
DRAFT = str(BUNDLED_PAIR / "draft")
TRANSFORMERS = [
    "-c",
    "from transformers.cli.transformers import main; main()",
    "serve",
    "--device",
    "cpu",
    "--dtype",
    "float32",
]
REPEATING = "red, blue, green, red, blue, green, red, blue,"


@contextmanager
def serving(*command: str) -> Iterator[str]:
    """A server on a free port, once it answers."""
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    options = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "env": os.environ | {"PYTHONUNBUFFERED": "1"},
    }
    process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(port)], **options)
    try:
        assert any("Uvicorn running on" in line for line in process.stdout), (
            f"{command} ended with {process.wait()}"
        )
        threading.Thread(
            target=process.stdout.read, daemon=True
        ).start()  # a full pipe would stop the server
        yield url
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def prove(tmp_path, capsys):
    """Proves a server with two prompts; returns exit status and result."""
    (tmp_path / "prompts.txt").write_text(f"Once upon a time\n{REPEATING}\n", encoding="utf-8")

    def run(url: str, model: str, samples: int, *arguments: str):
        quick = [
            "--samples",
            str(samples),
            "--greedy-tokens",
            "8",
            "--concurrency",
            "2",
            "--prompts",
            str(tmp_path / "prompts.txt"),
        ]
        status = main(["prove", "--endpoint", url, "--model", model, *quick, "--json", *arguments])
        return status, json.loads(capsys.readouterr().out)

    return run


def test_transformers_server_samples_only_where_it_is_asked_to(prove):
    """It takes a temperature, but decodes greedily unless the generation configuration says
    `do_sample`."""
    with serving(sys.executable, *TRANSFORMERS) as url:
        status, found = prove(url, DRAFT, 60, "--reference", DRAFT)
        assert status == 1
        assert found["verdict"].endswith("It seems to ignore the temperature.")
        sampling = json.dumps({"generation_config": json.dumps({"do_sample": True, "top_k": 0})})
        status, found = prove(url, DRAFT, 120, "--reference", DRAFT, "--body", sampling)
    assert (status, found["verdict"]) == (0, "No difference found.")
    assert found["greedy"]["num_differing"] == 0
