"""`prove --endpoint` on llama.cpp's server, prebuilt, with a draft model and without."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from naive_speculate.__main__ import main
from naive_speculate.pair import BUNDLED_PAIR
from tests.models.gguf.files import written

DRAFT = str(BUNDLED_PAIR / "draft")
QUICK = ["--samples", "60", "--greedy-tokens", "8", "--concurrency", "2", "--temperatures", "1"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A small model as a GGUF file, and one that agrees with it at times."""
    folder = tmp_path_factory.mktemp("gguf")
    tokenizer = AutoTokenizer.from_pretrained(DRAFT)
    model = AutoModelForCausalLM.from_pretrained(DRAFT, dtype="float32")
    target = written(model, folder / "target.gguf", tokenizer)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weights in model.parameters():
            noise = torch.randn(weights.shape, generator=random)
            weights += 0.3 * weights.std(correction=0) * noise
    return str(target), str(written(model, folder / "draft.gguf", tokenizer))


@contextmanager
def serving(*models):
    """A server on a free port, once it answers."""
    program = [sys.executable, str(Path(__file__).parent / "llama_server.py"), *models]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(program, text=True, **pipes)
    try:
        address = next((line for line in process.stdout if line.startswith("http")), None)
        assert address is not None, f"the server ended with {process.wait()}"
        yield address.strip() + "/v1"
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.mark.parametrize("drafts", [False, True])
def test_llama_cpp_s_server_is_lossless_and_what_was_tested_of_its_drafts_is_known(
    models, drafts, tmp_path, capsys
):
    (tmp_path / "prompts.txt").write_text("Once upon a time\n", encoding="utf-8")
    with serving(*models[: 1 + drafts]) as url:
        where = ["--endpoint", url, "--model", "m", "--prompts", str(tmp_path / "prompts.txt")]
        status = main(["prove", *where, *QUICK, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (status, found["verdict"]) == (0, "No difference found.")
    assert (found["greedy"]["num_differing"], found["greedy"]["num_left_out"]) == (0, 0)
    assert found["drafted"]["known"] == drafts
    assert found["drafted"]["num_tokens"] >= 60
