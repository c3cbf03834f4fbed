"""A head is trained, resumed and exported; its simulated steps are what the decoder computes."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from train import head as head_module
from train.__main__ import main
from train.config import HEADS, PRESETS, HeadRecipe, ModelShape
from train.errors import TrainingError
from train.head import HeadModel, begin_head, export_head, frequent_tokens, head_loss, train_head
from train.loop import Budget
from train.pipeline import Workshop, new_model, prepare, train_target
from train.teacher import Lesson, hidden_states

RECIPE = HEADS["tiny"]
TINY = ["--preset", "tiny", "--threads", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def shop(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    made = Workshop(PRESETS["tiny"], tmp_path_factory.mktemp("head"), torch.device("cpu"), compile=False)
    prepare(made, [corpus], valid=None)
    return made


@pytest.fixture(scope="module")
def target(shop: Workshop) -> torch.nn.Module:
    return train_target(shop, Budget(steps=20))[0]


@pytest.fixture(scope="module")
def draft(shop: Workshop) -> torch.nn.Module:
    return new_model(shop, shop.recipe.draft)


def new_head(shop: Workshop, draft: torch.nn.Module, recipe: HeadRecipe) -> HeadModel:
    return HeadModel(recipe, draft, shop.recipe.target.hidden, frequent_tokens(shop, recipe.known_tokens))


@pytest.mark.parametrize("known", [None, 200])
@pytest.mark.parametrize("layers", [1, 2])
def test_simulated_steps_are_what_the_exported_head_computes(
    shop: Workshop, tmp_path: Path, layers: int, known: int | None
) -> None:
    """Each window from a place on, of its own: the target's states up to there, then the head's own."""
    recipe = replace(RECIPE, known_tokens=known)
    target = new_model(shop, shop.recipe.target)
    tokens = frequent_tokens(shop, known)
    model = new_head(shop, new_model(shop, replace(shop.recipe.draft, layers=layers)), recipe)
    for parameter in model.parameters():  # what half precision holds exactly
        parameter.data = (parameter.data + 0.1 * torch.randn(parameter.shape)).half().float()
    target.save_pretrained(tmp_path / "target")
    shop.tokenizer().save(str(tmp_path / "target" / "tokenizer.json"))
    export_head(model, recipe, tmp_path / "head")
    pair = load_pair(tmp_path / "target", head=tmp_path / "head", device="cpu")
    assert pair.head is not None
    assert pair.head.layers == recipe.layers
    text = torch.randint(0, shop.recipe.vocab_size, (1, 12))
    features = torch.randn(1, 12, 3 * target.config.hidden_size)
    with torch.no_grad():
        simulated = model(text, features, 4)
    for start in range(8):  # the last place whose state is the target's
        cache = pair.head.new_cache(1)
        fused = pair.head.fuse(features[:, : start + 1])
        logits, state = pair.head.forward(text[:, : start + 1], fused, cache.all_rows(), [start])
        for step in range(4):
            expected = simulated[step][0, start + step]
            torch.testing.assert_close(logits[0, tokens], expected, atol=1e-4, rtol=1e-4)
            assert logits.isfinite().sum() == len(tokens)
            place = start + step + 1
            logits, state = pair.head.forward(text[:, place : place + 1], state[:, None], cache.all_rows(), [0])


def test_a_head_begins_as_the_draft(shop: Workshop, draft: torch.nn.Module) -> None:
    """Whatever the states are, also in later steps."""
    head = new_head(shop, draft, replace(RECIPE, known_tokens=None))
    tokens = torch.randint(0, shop.recipe.vocab_size, (2, 20))
    with torch.no_grad():
        expected = draft(tokens).logits
        for step, logits in enumerate(head(tokens, torch.randn(2, 20, head.fc.in_features), 3)):
            torch.testing.assert_close(logits[:, step:], expected[:, step:])


def test_the_loss_is_one_minus_what_is_accepted(shop: Workshop, target: torch.nn.Module, draft: torch.nn.Module) -> None:
    recipe = replace(RECIPE, known_tokens=100)
    head = new_head(shop, draft, recipe)
    torch.nn.init.normal_(head.state_proj.weight)
    tokens = torch.randint(0, shop.recipe.vocab_size, (2, 20))
    with torch.no_grad():
        states, probs = hidden_states(target, tokens, recipe.layers), target(tokens).logits.softmax(-1)
        values, likeliest = probs.sort(-1, descending=True)
        found = head_loss(head, recipe, 1.0, num_steps=1)(Lesson(tokens, likeliest, values, states))
        p = probs[:, 1:]
        q = torch.zeros_like(p)
        q[..., head.t2d] = head(tokens[:, 1:], states[:, :-1], 1)[0].softmax(-1)
    assert found.item() == pytest.approx(1 - torch.minimum(p, q).sum(-1).mean().item(), abs=1e-5)


def test_the_most_frequent_tokens_are_known(shop: Workshop) -> None:
    counts = torch.bincount(torch.tensor(shop.tokens("train").astype("int64")), minlength=shop.recipe.vocab_size)
    known = frequent_tokens(shop, 50)
    assert known.tolist() == sorted(set(known.tolist()))
    assert len(known) == 50
    others = torch.ones(shop.recipe.vocab_size, dtype=torch.bool).index_fill_(0, known, False)
    assert counts[known].min() >= counts[others].max()


def test_a_head_learns_and_goes_on_where_it_was_interrupted(
    shop: Workshop, target: torch.nn.Module, draft: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps rather than minutes: straight through, and in two stretches."""

    def trained(number: int, *stretches: tuple[Budget, ...]) -> dict[str, torch.Tensor]:
        for budgets in stretches:  # of all stages
            left = iter(budgets)
            monkeypatch.setattr(head_module, "Budget", lambda left=left, **_: next(left))
            head = train_head(shop, target, draft, number, RECIPE, 1.0)
        return head.state_dict()

    whole, none = (Budget(steps=10), Budget(steps=60), Budget(steps=8)), Budget(minutes=0)
    stretches = (Budget(steps=4), none, none), (Budget(steps=10), Budget(steps=20), none), whole
    straight, resumed = trained(101, whole), trained(102, *stretches)
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)
    with (shop.work / "draft-of-0000101" / "head.csv").open() as file:
        losses = [float(row["train_loss"]) for row in csv.DictReader(file)]
    assert losses[-1] < losses[0]
    monkeypatch.undo()
    other = replace(RECIPE, steps=2)
    with pytest.raises(TrainingError, match=r"another configuration: .*head.steps: 3 there, 2 here"):
        train_head(shop, target, draft, 101, other, 1.0)


def test_a_head_goes_on_from_an_exported_one(shop: Workshop, draft: torch.nn.Module, tmp_path: Path) -> None:
    for known in (None, 60):
        recipe = replace(RECIPE, known_tokens=known)
        first = new_head(shop, draft, recipe)
        with torch.no_grad():
            for parameter in first.parameters():
                parameter.copy_(torch.randn_like(parameter).half())
        export_head(first, recipe, tmp_path / "first")
        found = begin_head(replace(shop, init_head=tmp_path / "first"), draft, recipe).state_dict()
        assert all(torch.equal(found[name], tensor) for name, tensor in first.state_dict().items())
    wider = new_model(shop, ModelShape(layers=1, hidden=32, heads=2, intermediate=32))
    with pytest.raises(TrainingError, match=r"--init-head: .*first is of another shape .*embed_tokens"):
        begin_head(replace(shop, init_head=tmp_path / "first"), wider, RECIPE)
    with pytest.raises(TrainingError, match="--init-head: no exported head in"):
        begin_head(replace(shop, init_head=tmp_path / "none"), draft, RECIPE)


def test_the_command_makes_a_head_that_is_loaded_with_its_pair(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "pair"
    argv = ["--corpus", str(corpus), "--work", str(tmp_path / "work"), "--out", str(out), "--minutes", "0.01"]
    assert main([*argv, *TINY, "--head-minutes", "0.02"]) == 0
    assert "head, greedy: " in capsys.readouterr().out
    assert sum(path.stat().st_size for path in (out / "head").iterdir()) < 200_000
    assert (out / "README.md").read_text(encoding="utf-8").count("## Draft head") == 1
    decoder = SpeculativeDecoder(load_pair(out / "target", out / "draft", out / "head", device="cpu"))
    params = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
    plain = decoder.generate("One day", params, num_draft_tokens=0)
    assert decoder.generate("One day", params, drafter="head").token_ids == plain.token_ids
    argv += ["--init", str(out / "target"), "--init-draft", str(out / "draft")]
    argv[argv.index("--work") + 1] = str(tmp_path / "next")
    assert main([*argv, *TINY, "--head-minutes", "0.01", "--init-head", str(tmp_path)]) == 2
    assert "--init-head: no exported head in" in capsys.readouterr().err
    assert main([*argv, *TINY, "--head-minutes", "0.01", "--init-head", str(out / "head")]) == 0
    assert "begun as a head that was there before" in (out / "README.md").read_text(encoding="utf-8")
    assert main([*argv, *TINY, "--head-minutes", "-1"]) == 2
    assert "--head-minutes must not be negative" in capsys.readouterr().err
