"""Target, draft and head learn together: what is measured, what learns from it, and what a run leaves."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch

from naive_speculate import load_pair
from train import distil
from train.__main__ import main
from train.config import HEADS, PRESETS, TOGETHER
from train.distil import SAMPLES, TEMPERATURES, temperature_of, write_samples
from train.head import STEP_DECAY, HeadModel, frequent_tokens
from train.optim import PairOptimizer
from train.pipeline import Workshop, new_model, prepare
from train.together import COLDEST, BooksAndSamples, Rows, Trio, joint_loss, losses, variation

TINY = ["--preset", "tiny", "--threads", "1", "--device", "cpu"]
RECIPE = HEADS["tiny"]


@pytest.fixture(scope="module")
def shop(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    made = Workshop(PRESETS["tiny"], tmp_path_factory.mktemp("together"), torch.device("cpu"), compile=False)
    prepare(made, [corpus], valid=None)
    return made


@pytest.fixture
def trio(shop: Workshop) -> Trio:
    target, draft = new_model(shop, shop.recipe.target), new_model(shop, shop.recipe.draft)
    head = HeadModel(RECIPE, draft, shop.recipe.target.hidden, frequent_tokens(shop, RECIPE.known_tokens))
    made = Trio(target, draft, head)
    torch.manual_seed(0)
    for parameter in made.parameters():  # or all would say nearly the same
        parameter.data += 0.1 * torch.randn(parameter.shape)
    return made


@pytest.fixture
def rows(shop: Workshop) -> Rows:
    tokens = torch.from_numpy(shop.tokens("train")[: 4 * 33].astype("int64")).view(4, 33)
    return Rows(tokens[:2], tokens[2:], torch.tensor([0.7, 1.0]))


def test_the_losses_are_what_an_independent_computation_says(trio: Trio, rows: Rows) -> None:
    own, of_draft, of_head = losses(trio, RECIPE.layers, 2, rows)
    tokens, temperatures = torch.cat([rows.books, rows.written]), torch.tensor([1.0, 1.0, 0.7, 1.0])[:, None, None]
    output = trio.target(tokens[:, :-1], output_hidden_states=True)
    logits = output.logits
    nats = [-logits[row].log_softmax(-1)[range(32), rows.books[row, 1:]].mean() for row in (0, 1)]
    torch.testing.assert_close(own, sum(nats) / 2)

    p = torch.softmax(logits / temperatures, -1)
    q = torch.softmax(trio.draft(tokens[:, :-1]).logits / temperatures, -1)
    torch.testing.assert_close(of_draft, 1 - torch.minimum(p, q).sum(-1).mean())

    states = torch.cat([output.hidden_states[layer] for layer in RECIPE.layers], -1)[:, :-1]
    expected = 0.0
    for step, found in enumerate(trio.head(tokens[:, 1:-1], states, 2)):
        q = torch.zeros_like(p[:, 1:]).masked_scatter(
            trio.head.t2d.expand_as(p[:, 1:]), torch.softmax(found / temperatures, -1)
        )
        expected = expected + STEP_DECAY**step * (1 - torch.minimum(p[:, 1:], q).sum(-1))[:, step:].mean()
    torch.testing.assert_close(of_head, expected / (1 + STEP_DECAY))


def test_variation_counts_what_one_side_lacks() -> None:
    assert variation(torch.tensor([[0.5, 0.25]]), torch.tensor([[1.0, 0.0]])).item() == 0.5
    assert variation(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])).item() == 1
    assert variation(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.5, 0.5]])).item() == 1


def test_target_and_drafters_learn_from_how_far_they_are_apart(trio: Trio, rows: Rows) -> None:
    _, of_draft, of_head = losses(trio, RECIPE.layers, 2, rows)
    (of_draft + of_head).backward()
    for model in (trio.target, trio.draft, trio.head):
        assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_the_target_learns_nothing_from_what_it_wrote(trio: Trio, rows: Rows) -> None:
    learned = []
    for written in (rows.written, rows.books):
        trio.zero_grad()
        joint_loss(trio, RECIPE.layers, 2, 1.0)(rows._replace(written=written)).backward()
        models = (trio.target, trio.draft, trio.head)
        learned.append([torch.cat([weight.grad.flatten() for weight in model.parameters()]) for model in models])
    torch.testing.assert_close(learned[0][0], learned[1][0])
    assert not any(torch.allclose(a, b) for a, b in zip(*(found[1:] for found in learned), strict=True))


def test_training_brings_them_together(trio: Trio, rows: Rows) -> None:
    start = [value.item() for value in losses(trio, RECIPE.layers, 2, rows)]
    ends = []
    for weight in (1.0, 10.0):
        model = copy.deepcopy(trio)
        loss, optimizer = joint_loss(model, RECIPE.layers, 2, weight), PairOptimizer(model, 0.01, 0.003)
        for _ in range(20):
            loss(rows).backward()
            optimizer.step()
        ends.append([value.item() for value in losses(model, RECIPE.layers, 2, rows)])
    little, much = ends
    assert little[0] < much[0] < start[0]  # each learned to speak, and the more it was to be guessed the less
    assert much[1] < 0.9 * min(start[1], little[1])
    assert much[2] < 0.9 * min(start[2], little[2])


def test_a_share_of_the_rate_is_a_share_of_the_step(trio: Trio, rows: Rows) -> None:
    moved = []
    for share in (1.0, 0.25):
        model = copy.deepcopy(trio)
        optimizer = PairOptimizer(model, 0.01, 0.003, {"target.": share})
        optimizer.set_rate(0.5)
        joint_loss(model, RECIPE.layers, 2, 1.0)(rows).backward()
        optimizer.step()
        names = ("target.model.layers.0.mlp.up_proj.weight", "target.model.norm.weight", "draft.model.norm.weight")
        moved.append([(model.get_parameter(name) - trio.get_parameter(name)).norm().item() for name in names])
    assert [b / a for a, b in zip(*moved, strict=True)] == pytest.approx([0.25, 0.25, 1.0], rel=0.01)


def test_rows_carry_the_temperature_that_they_were_written_at(
    shop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[float] = []

    def one_token(_model: object, prompts: torch.Tensor, new: int, temperature: float, _: object) -> torch.Tensor:
        drawn.append(temperature)
        return torch.cat([prompts, torch.full((len(prompts), new), len(drawn))], 1)

    monkeypatch.setattr(distil, "continue_prompts", one_token)
    path = tmp_path / SAMPLES
    write_samples(shop, new_model(shop, shop.recipe.target), path)
    assert len(set(drawn)) == len(set(TEMPERATURES))
    stream = BooksAndSamples(shop, path)
    written = stream.samples.tokens
    length = shop.recipe.sequence_length
    for start in range(0, len(written) - length, length):  # the latter half of a window is of a continuation
        assert temperature_of(shop.recipe, start) == drawn[int(written[start + length - 1]) - 1]
    batch = stream.next_batch(8, length, torch.device("cpu"))
    assert batch.books.shape == batch.written.shape == (4, length + 1)
    found = [drawn[int(row[length - 1]) - 1] or COLDEST for row in batch.written]
    assert batch.temperatures.tolist() == pytest.approx(found)

    again = BooksAndSamples(shop, path)
    again.position = stream.position
    first, second = (one.next_batch(4, length, torch.device("cpu")) for one in (stream, again))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_run_trains_all_three_and_tells_of_it(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    common = ["--corpus", str(corpus), *TINY]
    made = [*common, "--work", str(tmp_path / "a"), "--out", str(first), "--minutes", "0.01", "--head-minutes", "0.01"]
    assert main(made) == 0
    given = ["--init", str(first / "target"), "--init-draft", str(first / "draft"), "--seed", "2", "--minutes", "0"]
    more = [*common, "--work", str(tmp_path / "b"), "--out", str(second), *given]
    assert main([*more, "--together-minutes", "0.05"]) == 2
    assert "--init-head" in capsys.readouterr().err
    more += ["--init-head", str(first / "head"), "--together-minutes", "0.05"]
    assert main(more) == 0
    pairs = [load_pair(folder / "target", folder / "draft", folder / "head", device="cpu") for folder in (first, second)]
    assert all(pair.head is not None for pair in pairs)
    for file in ("target/model.safetensors", "draft/model.safetensors", "head/model.safetensors"):
        assert (first / file).read_bytes() != (second / file).read_bytes()
    legs = json.loads((second / "training.json").read_text())
    assert len(legs) == 2
    assert legs[1]["together"] is True
    assert legs[1]["tokens"] > 0
    assert legs[1]["muon_rate"] == pytest.approx(TOGETHER["tiny"].muon_rate * TOGETHER["tiny"].target_share)
    card = (second / "README.md").read_text()
    assert "learned together" in card
    assert "one.txt, its own; with its drafters" in card
    assert (
        "--minutes 0 --seed 2 --init FOLDER/target --init-draft FOLDER/draft --init-head FOLDER/head --together-minutes" in card
    )
    assert "what the target says of 0.00 M" not in card
    weights = (second / "head" / "model.safetensors").read_bytes()
    assert main(more) == 0  # a finished run only exports
    assert (second / "head" / "model.safetensors").read_bytes() == weights
