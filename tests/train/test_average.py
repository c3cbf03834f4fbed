"""The mean of exported models: each weight is the mean of theirs, and what cannot be averaged is refused in a line."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, LlamaForCausalLM

from train.average import main
from train.config import PRESETS, ModelShape
from train.export import export
from train.pipeline import Workshop, new_model
from train.tokenizer import train_tokenizer

RECIPE = PRESETS["tiny"]


@pytest.fixture(scope="module")
def models(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two exported models of one shape, one with another rotary base, and one of another shape."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer([(corpus / "one.txt").read_text(encoding="utf-8")], RECIPE.vocab_size)
    shapes: dict[str, ModelShape] = {"one": RECIPE.target, "two": RECIPE.target, "other": replace(RECIPE.target, layers=1)}
    for seed, (name, shape) in enumerate(shapes.items()):
        shop = Workshop(replace(RECIPE, seed=seed), folder, torch.device("cpu"), compile=False)
        export(new_model(shop, shape), tokenizer, folder / name)
    shutil.copytree(folder / "one", folder / "turned")
    config = folder / "turned" / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("10000.0", "20000.0"), encoding="utf-8")
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()


def test_every_weight_is_the_mean_by_the_shares(models: Path, tmp_path: Path) -> None:
    assert main([str(tmp_path / "mean"), f"{models / 'one'}=1", f"{models / 'two'}=3"]) == 0
    one, two, mean = (weights(folder) for folder in (models / "one", models / "two", tmp_path / "mean"))
    for name, weight in mean.items():
        torch.testing.assert_close(weight, 0.25 * one[name] + 0.75 * two[name], rtol=1e-3, atol=1e-6)
    assert not torch.equal(one["model.embed_tokens.weight"], two["model.embed_tokens.weight"])
    assert len(AutoTokenizer.from_pretrained(tmp_path / "mean")) == RECIPE.vocab_size


def test_a_head_s_table_of_tokens_stays_as_it_is(tmp_path: Path) -> None:
    for name, value in (("one", 1.0), ("two", 2.0)):
        (tmp_path / name).mkdir()
        tensors = {"fc.weight": torch.full((2, 2), value).half(), "d2t": torch.tensor([3, 7])}
        save_file(tensors, tmp_path / name / "model.safetensors")
    assert main([str(tmp_path / "mean"), f"{tmp_path / 'one'}=.5", f"{tmp_path / 'two'}=.5"]) == 0
    mean = load_file(tmp_path / "mean" / "model.safetensors")
    assert mean["d2t"].tolist() == [3, 7]
    assert torch.equal(mean["fc.weight"], torch.full((2, 2), 1.5).half())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["one=1"], "usage: python -m train.average OUT FOLDER=SHARE FOLDER=SHARE"),
        (["one=1", "two=much"], "usage: "),
        (["one=1", "two"], "usage: "),
        ([], "usage: "),
        (["one=1", "two=0"], "two: its share must be above 0, got 0"),
        (["one=inf", "two=1"], "one: its share must be above 0, got inf"),
        (["one=1", "turned=1"], "config.json is not the same in .*one, .*turned"),
        (["one=1", "nowhere=1"], "error: no exported model in .*nowhere"),
        (["one=1", "other=1"], "other is of another shape than .*one .*model.layers.1"),
    ],
)
def test_what_cannot_be_averaged_is_refused_in_a_line(
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(models)
    assert main([str(tmp_path / "out"), *given]) == 2
    assert re.search(said, capsys.readouterr().err.strip().splitlines()[-1])
    assert not any(tmp_path.iterdir())
