"""The whole pipeline on a tiny corpus, resuming, and what the user is told when something is wrong."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from train.__main__ import main
from train.checkpoint import CheckpointFolder
from train.config import PRESETS
from train.errors import TrainingError
from train.legs import earlier_legs, table
from train.loop import Budget
from train.pipeline import Workshop, given_weights, new_model, prepare, train_target

TINY = ["--preset", "tiny", "--threads", "1", "--device", "cpu"]


def arguments(corpus: Path, work: Path, out: Path, minutes: float = 0.01) -> list[str]:
    return ["--corpus", str(corpus), "--work", str(work), "--out", str(out), "--minutes", str(minutes), *TINY]


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("run")
    assert main(arguments(corpus, folder / "work", folder / "pair")) == 0
    return folder / "work", folder / "pair"


@pytest.mark.parametrize("name", ["target", "draft"])
def test_what_is_exported_loads_with_the_auto_classes(finished: tuple[Path, Path], name: str) -> None:
    folder = finished[1] / name
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.dtype == torch.float16
    assert model.config.eos_token_id == model.config.bos_token_id == tokenizer.eos_token_id == 0
    assert model.config.vocab_size == len(tokenizer) == PRESETS["tiny"].vocab_size
    assert model.generation_config.do_sample is False
    assert tokenizer.decode(tokenizer.encode(" Ünï 😀\n")) == " Ünï 😀\n"


def test_the_model_card_and_the_loss_curve_are_written(finished: tuple[Path, Path]) -> None:
    work, out = finished
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "license: apache-2.0" in card
    assert card.count("> **") == 12
    assert "legs" not in card
    assert "python -m train --corpus one.txt --preset tiny --work FOLDER --out assets/pair --tokens " in card
    assert (out / "loss-curve.png").stat().st_size > 1000
    with (work / "target.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[-1]["valid_loss"]) > 0
    assert [int(row["step"]) for row in rows] == sorted(int(row["step"]) for row in rows)


def test_a_finished_run_started_again_only_exports(finished: tuple[Path, Path], corpus: Path, tmp_path: Path) -> None:
    work, out = finished
    before = (work / "target.csv").read_text()
    assert main(arguments(corpus, work, tmp_path / "again")) == 0
    assert (work / "target.csv").read_text() == before
    first, second = (AutoModelForCausalLM.from_pretrained(f / "target").state_dict() for f in (out, tmp_path / "again"))
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_training_in_two_stretches_equals_training_in_one(corpus: Path, tmp_path: Path) -> None:
    recipe = replace(PRESETS["tiny"], decay_share=0.0)

    def trained(folder: str, stretches: list[int]) -> dict[str, torch.Tensor]:
        shop = Workshop(recipe, tmp_path / folder, torch.device("cpu"), compile=False)
        prepare(shop, [corpus], valid=None)
        for steps in stretches:
            model, made = train_target(shop, Budget(steps=steps))
            assert made == steps
        return model.state_dict()

    straight, resumed = trained("one", [6]), trained("two", [2, 6])
    assert all(torch.equal(straight[key], resumed[key]) for key in straight)


def test_the_target_learns(corpus: Path, tmp_path: Path) -> None:
    shop = Workshop(PRESETS["tiny"], tmp_path, torch.device("cpu"), compile=False)
    prepare(shop, [corpus], valid=None)
    train_target(shop, Budget(steps=60))
    with (tmp_path / "target.csv").open() as file:
        losses = [float(row["train_loss"]) for row in csv.DictReader(file)]
    assert losses[-1] < losses[0] - 0.5


def test_training_goes_on_from_an_exported_target(
    finished: tuple[Path, Path], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = finished[1] / "target"
    more = ["--init", str(exported), "--seed", "2"]
    assert main([*arguments(corpus, tmp_path / "work", tmp_path / "pair", minutes=0), *more]) == 0
    first, second = (AutoModelForCausalLM.from_pretrained(f).state_dict() for f in (exported, tmp_path / "pair" / "target"))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert (exported / "tokenizer.json").read_text() == (tmp_path / "pair" / "target" / "tokenizer.json").read_text()
    first_leg, second_leg = json.loads((tmp_path / "pair" / "training.json").read_text())
    assert [first_leg] == json.loads((finished[1] / "training.json").read_text())
    assert first_leg["tokens"] > second_leg["tokens"] == 0
    card = (tmp_path / "pair" / "README.md").read_text()
    assert "Target, in 2 legs" in card
    assert f"| 2 × 32 | one.txt | {first_leg['tokens'] / 1e6:.1f} M | {first_leg['steps']} |" in card
    assert "--minutes 0 --seed 2 --init FOLDER/target" in card
    message = says(capsys, [*arguments(corpus, tmp_path / "new", tmp_path / "pair"), "--init", str(tmp_path / "none")])
    assert "no exported model in" in message


def test_legs_are_told_once_even_where_a_pair_takes_the_place_of_the_one_it_went_on_from(
    finished: tuple[Path, Path], corpus: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished[1], tmp_path / "pair")
    again = [*arguments(corpus, tmp_path / "work", tmp_path / "pair", minutes=0), "--init", str(tmp_path / "pair" / "target")]
    for _ in range(2):  # the second time only exports
        assert main(again) == 0
        assert len(json.loads((tmp_path / "pair" / "training.json").read_text())) == 2


def test_of_a_target_without_a_record_its_shape_is_told(finished: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(finished[1] / "target", tmp_path / "target")
    assert table(earlier_legs(tmp_path / "target")).splitlines()[-1].startswith("| 2 × 32 | not recorded |")


def test_distillation_goes_on_from_an_exported_draft(
    finished: tuple[Path, Path], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = finished[1] / "draft"
    given = ["--init-draft", str(exported)]
    assert main([*arguments(corpus, tmp_path / "work", tmp_path / "pair", minutes=0), *given]) == 0
    first, second = (AutoModelForCausalLM.from_pretrained(f).state_dict() for f in (exported, tmp_path / "pair" / "draft"))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert "begun as the draft of an earlier target" in (tmp_path / "pair" / "README.md").read_text()
    assert not list((tmp_path / "work").glob("draft-pretrain-*.pt"))
    wrong = ["--init-draft", str(finished[1] / "target")]
    assert "--init-draft: " in says(capsys, [*arguments(corpus, tmp_path / "new", tmp_path / "pair"), *wrong])
    assert not list((tmp_path / "new").glob("target-*.pt"))  # told before the target was trained
    without = [*arguments(corpus, tmp_path / "work", tmp_path / "pair", minutes=0), "--draft-minutes", "0.01"]
    assert main([*without, *given]) == 0
    assert "init_draft: draft there, None here" in says(capsys, without)


@pytest.mark.parametrize(
    "shape", [{"layers": 5}, {"hidden": 48, "heads": 3}, {"layers": 3, "hidden": 48, "heads": 3, "intermediate": 80}]
)
def test_a_given_model_grows_into_a_larger_one_that_computes_the_same(
    finished: tuple[Path, Path], tmp_path: Path, shape: dict[str, int]
) -> None:
    shop = Workshop(recipe=PRESETS["tiny"], work=tmp_path, device=torch.device("cpu"), compile=False)
    grown = new_model(shop, replace(PRESETS["tiny"].target, **shape))
    given_weights(grown, finished[1] / "target", "--init")
    small = AutoModelForCausalLM.from_pretrained(finished[1] / "target", dtype=torch.float32)
    tokens = torch.arange(40).reshape(2, 20)
    # The norm's epsilon weighs a little more in a wider stream: 5e-3 of logits that are as large as 1 to 3.
    torch.testing.assert_close(grown(tokens).logits, small(tokens).logits, rtol=0, atol=5e-3)
    for _ in range(2):  # what an added layer reads matters once it writes something
        grown.zero_grad()
        grown(tokens, labels=tokens).loss.backward()
        torch.optim.SGD(grown.parameters(), lr=0.1).step()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in grown.parameters())


def test_a_given_model_that_is_larger_or_of_another_head_size_is_refused(finished: tuple[Path, Path], tmp_path: Path) -> None:
    shop = Workshop(recipe=PRESETS["tiny"], work=tmp_path, device=torch.device("cpu"), compile=False)
    shape = PRESETS["tiny"].target
    for other, named in (
        (replace(shape, layers=1), "num_hidden_layers: 2 there, 1 here"),
        (replace(shape, heads=4), "head_dim"),
    ):
        with pytest.raises(TrainingError, match=named):
            given_weights(new_model(shop, other), finished[1] / "target", "--init")


def says(capsys: pytest.CaptureFixture[str], argv: list[str]) -> str:
    assert main(argv) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: ")
    return message


def test_bad_input_is_one_line_and_status_two(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    assert "corpus not found" in says(capsys, arguments(tmp_path / "nowhere", work, out))
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / "a.txt").write_text("Too short.\n<|endoftext|>\nFar too short.")
    assert "too little text" in says(capsys, arguments(tmp_path / "short", work, out))
    assert "must not be negative" in says(capsys, arguments(corpus, work, out, minutes=-1))
    assert "validation file not found" in says(capsys, [*arguments(corpus, work, out), "--valid", str(tmp_path / "v.txt")])
    assert "unknown --device" in says(capsys, [*arguments(corpus, work, out), "--device", "abacus"])
    assert not out.exists()


def test_a_work_folder_made_from_other_texts_is_refused(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.txt").write_text("Another book.")
    message = says(capsys, arguments(tmp_path, finished[0], tmp_path / "out"))
    assert "was made from other data" in message
    assert "other.txt" in message


def test_a_checkpoint_of_another_configuration_is_refused_and_kept(corpus: Path, tmp_path: Path) -> None:
    shop = Workshop(PRESETS["tiny"], tmp_path, torch.device("cpu"), compile=False)
    prepare(shop, [corpus], valid=None)
    train_target(shop, Budget(steps=2))
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("*.pt")}
    assert kept
    other = replace(shop.recipe, target=replace(shop.recipe.target, layers=3))
    with pytest.raises(
        TrainingError, match=r"another configuration: .*target-0000002\.pt \(recipe\.target\.layers: 2 there, 3 here\)"
    ):
        train_target(replace(shop, recipe=other), Budget(steps=4))
    assert kept == {path.name: path.read_bytes() for path in tmp_path.glob("*.pt")}


def test_two_checkpoints_are_kept_and_a_damaged_one_falls_back(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "target", {"layers": 2})
    for step in (1, 2, 3):
        folder.save({"step": step}, step)
    assert [path.name for path in folder.steps()] == ["target-0000002.pt", "target-0000003.pt"]
    folder.steps()[-1].write_bytes(b"cut off")
    state = folder.latest()
    assert state is not None
    assert state["step"] == 2
    folder.steps()[0].write_bytes(b"cut off too")
    with pytest.raises(TrainingError, match="unreadable checkpoint"):
        folder.latest()
