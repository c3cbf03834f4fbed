"""What the target says of a text is kept as it is, beside the right tokens, and reading goes on where it stopped."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from train.config import PRESETS
from train.data import open_tokens
from train.distil import write_samples
from train.errors import TrainingError
from train.loop import model_logits
from train.pipeline import Workshop
from train.precision import half_precision
from train.sampling import continue_prompts
from train.teacher import Lessons, keep_distributions, keep_states, write_text

RECIPE = PRESETS["tiny"]
LENGTH = RECIPE.sequence_length


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(RECIPE, tmp_path, torch.device("cpu"), compile=False)


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(RECIPE.target.llama_config(RECIPE.vocab_size, RECIPE.positions)).eval()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Twenty windows, of which nineteen count: the last token is only a label."""
    tokens = np.random.default_rng(0).integers(0, RECIPE.vocab_size, 2 * 21 * LENGTH, dtype=np.uint16)
    path = tmp_path / "lessons.tokens"
    write_text(tokens[: 10 * LENGTH], tokens[20 * LENGTH :], path)
    return path


def test_the_text_is_half_the_target_s_own(text: Path) -> None:
    every = np.random.default_rng(0).integers(0, RECIPE.vocab_size, 2 * 21 * LENGTH, dtype=np.uint16)
    assert np.array_equal(open_tokens(text), np.concatenate([every[: 10 * LENGTH], every[20 * LENGTH : 30 * LENGTH]]))


@torch.no_grad()
def test_each_lesson_says_what_the_target_says(shop: Workshop, target: LlamaForCausalLM, text: Path) -> None:
    keep_distributions(shop, target, text)
    lesson = Lessons(text, LENGTH, seed=3).next_batch(4, LENGTH, torch.device("cpu"))
    assert lesson.tokens.shape == (4, LENGTH)
    with half_precision(torch.device("cpu")):  # as it is asked where the processor multiplies bfloat16
        probs = torch.softmax(target(input_ids=lesson.tokens).logits.float(), -1)
    values, tokens = probs.topk(lesson.likeliest.shape[-1], -1)
    assert torch.allclose(lesson.probs, values, atol=1e-3)
    assert torch.allclose(probs.gather(-1, lesson.likeliest), values, atol=1e-6)
    assert (tokens == lesson.likeliest).float().mean() > 0.99  # ties may stand in another order


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lessons_for_a_head_have_the_target_s_states(
    shop: Workshop, target: LlamaForCausalLM, text: Path, dtype: torch.dtype
) -> None:
    target = copy.deepcopy(target).to(dtype)
    keep_distributions(shop, target, text)
    keep_states(shop, target, text, (0, 1))
    lesson = Lessons(text, LENGTH, 3, layers=(0, 1)).next_batch(10, LENGTH, torch.device("cpu"))
    states = target(input_ids=lesson.tokens, output_hidden_states=True).hidden_states
    assert lesson.states is not None
    torch.testing.assert_close(lesson.states, torch.cat(states[:2], -1).float(), atol=1e-2, rtol=1e-2)


def test_a_target_that_was_interrupted_writes_on(
    shop: Workshop, target: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    (np.arange(4000) % RECIPE.vocab_size).astype(np.uint16).tofile(shop.work / "train.tokens")
    write_samples(shop, target, shop.work / "straight.tokens")
    calls = []

    def twice(*arguments: Any) -> torch.Tensor:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return continue_prompts(*arguments)

    monkeypatch.setattr("train.distil.continue_prompts", twice)
    with pytest.raises(KeyboardInterrupt):
        write_samples(shop, target, shop.work / "resumed.tokens")
    with (shop.work / "resumed.partial").open("ab") as file:
        file.write(b"torn ")
    write_samples(shop, target, shop.work / "resumed.tokens")
    straight, resumed = ((shop.work / f"{name}.tokens").read_bytes() for name in ("straight", "resumed"))
    assert straight == resumed
    assert len(calls) == 3 + len(straight) // (2 * len(calls[0][1]) * LENGTH) - 2


def test_an_interrupted_reading_goes_on(
    shop: Workshop, target: LlamaForCausalLM, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_distributions(shop, target, text)
    whole = [text.with_suffix(suffix).read_bytes() for suffix in (".ids", ".probs")]
    text.with_suffix(".json").unlink()
    asked: list[int] = []

    def at_most_three(model: Any, tokens: torch.Tensor) -> torch.Tensor:
        asked.append(len(tokens))
        if len(asked) == 4:
            raise KeyboardInterrupt
        return model_logits(model, tokens)

    monkeypatch.setattr("train.teacher.model_logits", at_most_three)
    monkeypatch.setattr("train.teacher.SAVE_EVERY", 1)
    with pytest.raises(KeyboardInterrupt):
        keep_distributions(shop, target, text)
    keep_distributions(shop, target, text)
    assert asked == [4, 4, 4, 4, 4, 3]  # nineteen windows, and those again at which it was interrupted
    assert [text.with_suffix(suffix).read_bytes() for suffix in (".ids", ".probs")] == whole


def test_a_disk_without_room_is_told_at_once(
    shop: Workshop, target: LlamaForCausalLM, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(TrainingError, match=r"has room for 0\.0 GB; what the target says takes"):
        keep_distributions(shop, target, text)


def test_lessons_go_on_where_they_stopped(shop: Workshop, target: LlamaForCausalLM, text: Path) -> None:
    keep_distributions(shop, target, text)
    cpu = torch.device("cpu")
    lessons, again = Lessons(text, LENGTH, seed=3), Lessons(text, LENGTH, seed=3)
    lessons.next_batch(5, LENGTH, cpu)
    again.position = lessons.position
    assert torch.equal(lessons.next_batch(2, LENGTH, cpu).tokens, again.next_batch(2, LENGTH, cpu).tokens)
    with pytest.raises(ValueError, match=f"windows of {LENGTH} tokens, not of 7"):
        lessons.next_batch(1, 7, cpu)
