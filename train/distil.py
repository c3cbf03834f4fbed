"""Distil the draft from the target (DistillSpec, arXiv 2310.08461), on books and on the target's own text.

The acceptance rate of speculative sampling is one minus the total variation between draft and target, so that is what
the draft finally learns; before, forward KL, whose gradient does not vanish where the draft is far off, goes along.
"""

import copy
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import LlamaForCausalLM

from train.checkpoint import CheckpointFolder
from train.config import Recipe
from train.data import TokenStream, open_tokens
from train.loop import Budget, LossFunction, Stream, Training, model_logits
from train.pipeline import Workshop, compiled, given_weights, language_model_loss, new_model, validation
from train.precision import fast_bfloat16
from train.sampling import continue_prompts
from train.teacher import LIKELIEST, Lesson, Lessons, keep_distributions, write_text

PROMPT_TOKENS = 32
PASSAGE_TOKENS = 160  # of prompt and continuation: many short ones cost less than few long ones, and repeat themselves less
PRETRAIN_SHARE, POLISH_SHARE = 0.12, 0.23  # of the draft's minutes; the rest is distillation
TOTAL_VARIATION_WEIGHT = 0.7  # the rest is forward KL; polishing is total variation alone
WARMUP_STEPS = 10
SAMPLES = "samples.tokens"  # what the target wrote
LESSONS = "lessons.tokens"  # the text that the target is asked about
SMALLEST = 1e-9  # of the rest, and of what the target gives, in a logarithm
MOST_ROWS = 512  # of text that is written at once; the cache of the target of 40 million takes 2 GB in bfloat16
TEMPERATURES = (1.0, 1.0, 0.7, 0.0)  # of the target's samples, in turn


def distillation_loss(draft: LlamaForCausalLM, tv_weight: float) -> LossFunction:
    """Total variation and forward KL of the draft from what a ``Lesson`` says of the target; the rest is one bin."""

    def loss(lesson: Lesson) -> Tensor:
        log_q = torch.log_softmax(model_logits(draft, lesson.tokens).float(), -1).gather(-1, lesson.likeliest)
        return distance(with_rest(lesson.probs), log_with_rest(log_q), tv_weight)

    return loss


def with_rest(probs: Tensor) -> Tensor:
    """Some probabilities of a distribution ``(…, kept)``, and as one more what is left."""
    return torch.cat([probs, (1 - probs.sum(-1, keepdim=True)).clamp_min(0)], -1)


def log_with_rest(log_probs: Tensor) -> Tensor:
    """The same of logarithms, in which what is far off keeps its gradient."""
    rest = 1 - log_probs.exp().sum(-1, keepdim=True)
    return torch.cat([log_probs, rest.clamp_min(SMALLEST).log()], -1)


def distance(p: Tensor, log_q: Tensor, tv_weight: float) -> Tensor:
    """``tv_weight`` times ½ Σ |p − q|, the rest times Σ p log(p / q) in nats: the mean over positions."""
    variation = (p - log_q.exp()).abs().sum(-1).mean() / 2
    divergence = (p * (p.clamp_min(SMALLEST).log() - log_q)).sum(-1).mean()
    return tv_weight * variation + (1 - tv_weight) * divergence


def write_samples(shop: Workshop, target: LlamaForCausalLM, path: Path) -> None:
    """The target's continuations of training passages, ``PASSAGE_TOKENS`` with the prompt, one after another on disk; goes on
    where it was interrupted."""
    if path.exists():
        return
    rows, length = _round(shop.recipe)
    start = min(PROMPT_TOKENS, length // 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    rounds = max(len(TEMPERATURES), -(-shop.recipe.sample_tokens // (rows * length)))
    done = min(rounds, partial.stat().st_size // (2 * rows * length)) if partial.exists() else 0  # two bytes a token
    prompts = TokenStream(shop.tokens("train"), shop.recipe.seed + 1, position=done * rows * length)
    with partial.open("r+b" if done else "wb") as file:
        file.truncate(2 * done * rows * length)
        file.seek(0, 2)
        for number in tqdm(range(done, rounds), desc="sample", unit=f"×{rows * length} tok"):
            generator = torch.Generator(shop.device).manual_seed(shop.recipe.seed + number)
            prompt = prompts.next_batch(rows, length, shop.device)[:, :start]
            temperature = TEMPERATURES[number % len(TEMPERATURES)]
            tokens = continue_prompts(target, prompt, length - start, temperature, generator)
            tokens.cpu().numpy().astype(np.uint16).tofile(file)
            file.flush()
        np.zeros(1, dtype=np.uint16).tofile(file)  # the last window's last label
    partial.replace(path)


def temperature_of(recipe: Recipe, place: int) -> float:
    """Which of `TEMPERATURES` the token at this place of the samples was drawn with."""
    rows, length = _round(recipe)
    return TEMPERATURES[place // (rows * length) % len(TEMPERATURES)]


def _round(recipe: Recipe) -> tuple[int, int]:
    """How many passages are written at once, and their length."""
    return min(MOST_ROWS, max(2, recipe.micro_tokens // 16)), min(PASSAGE_TOKENS, recipe.sequence_length)


def quick_copy(shop: Workshop, target: LlamaForCausalLM) -> LlamaForCausalLM:
    """Frozen, and quick here."""
    teacher = copy.deepcopy(target).eval().requires_grad_(False)
    return teacher.bfloat16() if fast_bfloat16(shop.device) else teacher


def teacher_and_text(shop: Workshop, target: LlamaForCausalLM, target_step: int) -> tuple[LlamaForCausalLM, Path, Path]:
    """A frozen copy of the target that is quick here; the folder of what is made for it; the text there of which it has said
    what comes next."""
    teacher = quick_copy(shop, target)
    folder = shop.work / f"draft-of-{target_step:07d}"
    written, text = folder / SAMPLES, folder / LESSONS
    write_samples(shop, teacher, written)
    write_text(open_tokens(written), shop.tokens("train"), text)
    keep_distributions(shop, teacher, text)
    return teacher, folder, text


def for_drafts(recipe: Recipe) -> Recipe:
    """The draft's schedule: the same rates, with batches of its own, and soon at the full rate, since it is small."""
    warmup = min(WARMUP_STEPS, recipe.warmup_steps)
    return replace(recipe, batch_tokens=recipe.draft_batch_tokens, positions=recipe.sequence_length, warmup_steps=warmup)


def begin_draft(shop: Workshop) -> LlamaForCausalLM:
    """A new draft, or the given one.

    Raises:
        TrainingError: If the given one is missing or of another shape.
    """
    draft = new_model(shop, shop.recipe.draft)
    if shop.init_draft:
        given_weights(draft, shop.init_draft, "--init-draft")
    return draft


def train_draft(shop: Workshop, target: LlamaForCausalLM, target_step: int, minutes: float) -> LlamaForCausalLM:
    """Pre-train on the corpus (or begin with a given draft), distil, then polish; ``target_step`` keeps the drafts of
    different targets apart."""
    recipe, data = shop.recipe, shop.data_card()["source"]
    draft = begin_draft(shop)
    schedule = for_drafts(recipe)
    settings = {
        "recipe": asdict(recipe),
        "data": data,
        "init_draft": shop.init_draft.name if shop.init_draft else None,
        "likeliest": LIKELIEST,
    }

    def stage(name: str, folder: Path, loss: LossFunction, stream: Stream, share: float, **more: object) -> None:
        Training(
            name=name, model=draft, loss=compiled(shop, loss), stream=stream, recipe=schedule,
            checkpoints=CheckpointFolder(folder, name, {**settings, **more}),
            log_path=folder / f"{name}.csv", validate=lambda: validation(shop, draft, 32),
        ).run(Budget(minutes=minutes * share))  # fmt: skip

    pretrain_share = 0.0 if shop.init_draft else PRETRAIN_SHARE
    if not shop.init_draft:
        stage("draft-pretrain", shop.work, language_model_loss(draft),
              TokenStream(shop.tokens("train"), recipe.seed + 2), pretrain_share)  # fmt: skip
    _, folder, text = teacher_and_text(shop, target, target_step)
    lessons = Lessons(text, recipe.sequence_length, recipe.seed + 3)
    stage("draft", folder, distillation_loss(draft, TOTAL_VARIATION_WEIGHT),
          lessons, 1 - pretrain_share - POLISH_SHARE, target_step=target_step)  # fmt: skip
    stage("draft-polish", folder, distillation_loss(draft, 1.0), lessons, POLISH_SHARE, target_step=target_step)
    return draft
