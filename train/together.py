"""Train a target, its draft and its draft head together: the drafters go on learning what the target says, and the target
learns to say what can be guessed.

At temperature 1 a drafted token is kept with one minus the total variation between both distributions (Leviathan et al. 2023,
arXiv 2211.17192, theorem 3.5), and that has a slope for the target's weights too. Its own next-token loss goes along, so that
it gives up little of what it knows: where two words are as good, it comes to prefer the one that is guessed. A head reads the
target's hidden states, which so come to tell more of what follows (as where Medusa's heads and their model learn jointly, Cai
et al. 2024, arXiv 2401.10774, section 2.2.2).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from train.checkpoint import CheckpointFolder
from train.config import HeadRecipe, TogetherRecipe
from train.data import TokenStream, open_tokens
from train.distil import SAMPLES, for_drafts, quick_copy, temperature_of, write_samples
from train.head import STEP_DECAY, HeadModel
from train.loop import Budget, LossFunction, Training, model_logits, next_token_loss
from train.pipeline import Workshop, compiled
from train.precision import half_precision

NAME = "together"
COLDEST = 0.4  # in place of 0, at which nothing has a slope
VALID_WINDOWS = 16


class Trio(nn.Module):
    """What is trained together."""

    def __init__(self, target: LlamaForCausalLM, draft: LlamaForCausalLM, head: HeadModel) -> None:
        super().__init__()
        self.target, self.draft, self.head = target, draft, head


class Rows(NamedTuple):
    """A batch."""

    books: Tensor  # (rows, length + 1), int64
    written: Tensor  # the same of what the target wrote
    temperatures: Tensor  # (rows,), float32, at which it did


class BooksAndSamples:
    """As many windows of books as of what the target wrote."""

    def __init__(self, shop: Workshop, samples: Path) -> None:
        self.recipe = shop.recipe
        self.books = TokenStream(shop.tokens("train"), shop.recipe.seed + 6)
        self.samples = TokenStream(open_tokens(samples), shop.recipe.seed + 7)

    @property
    def position(self) -> int:
        return self.books.position + self.samples.position

    @position.setter
    def position(self, value: int) -> None:
        self.books.position = self.samples.position = value // 2

    def next_batch(self, rows: int, length: int, device: torch.device) -> Rows:
        half = max(1, rows // 2)
        starts = [self.samples.next_start(length) for _ in range(half)]
        written = [torch.from_numpy(self.samples.tokens[start : start + length + 1].astype("int64")) for start in starts]
        temperatures = [temperature_of(self.recipe, start) or COLDEST for start in starts]
        books = self.books.next_batch(half, length, device)
        return Rows(books, torch.stack(written).to(device), torch.tensor(temperatures, device=device))


def losses(trio: Trio, layers: Sequence[int], steps: int, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Three means over positions: the target's next-token loss in nats, and the draft's and the head's total variation from it.

    The target learns from books alone. Of what it wrote, where no loss of its own holds it, it would learn to repeat itself:
    nothing is guessed as well. There the drafters learn, each row at the temperature that it was written at.
    """
    logits, states = _said(trio.target, rows.books, layers)
    with torch.no_grad():
        logits_of_written, states_of_written = _said(trio.target, rows.written, layers)
    own = next_token_loss(logits, rows.books[:, 1:])
    temperature = torch.cat([torch.ones_like(rows.temperatures), rows.temperatures])[:, None, None]
    inputs = torch.cat([rows.books, rows.written])[:, :-1]
    p = torch.softmax(torch.cat([logits, logits_of_written]) / temperature, -1)
    of_draft = variation(p, torch.softmax(model_logits(trio.draft, inputs).float() / temperature, -1))
    features = torch.cat([states, states_of_written])[:, :-1]
    known = None if trio.head.lm_head.out_features == p.shape[-1] else trio.head.known
    of_head, weight = p.new_zeros(()), 0.0
    for step, found in enumerate(trio.head(inputs[:, 1:], features, steps)):
        q = torch.softmax(found[:, step:].float() / temperature, -1)
        there = p[:, 1 + step :]
        of_head = of_head + STEP_DECAY**step * variation(there if known is None else there[..., known], q)
        weight += STEP_DECAY**step
    return own, of_draft, of_head / weight


def _said(target: LlamaForCausalLM, tokens: Tensor, layers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Logits at all places but the last, and the hidden states after these layers side by side."""
    output = target(input_ids=tokens[:, :-1], use_cache=False, output_hidden_states=True)
    return output.logits.float(), torch.cat([output.hidden_states[layer] for layer in layers], -1)


def variation(p: Tensor, q: Tensor) -> Tensor:
    """½ Σ |p − q|, the mean over positions; what ``p`` lacks of 1 is where ``q`` has nothing."""
    return ((p - q).abs().sum(-1) + 1 - p.sum(-1)).mean() / 2


def joint_loss(trio: Trio, layers: Sequence[int], steps: int, weight: float) -> LossFunction:
    """The target's loss and ``weight`` times both drafters' total variation."""

    def loss(rows: Rows) -> Tensor:
        own, of_draft, of_head = losses(trio, layers, steps, rows)
        return own + weight * (of_draft + of_head)

    return loss


def train_together(
    shop: Workshop, trio: Trio, target_step: int, head_recipe: HeadRecipe, recipe: TogetherRecipe, minutes: float
) -> None:
    """Train all three where they stand; ``target_step`` keeps those of different targets apart."""
    folder = shop.work / f"draft-of-{target_step:07d}"
    write_samples(shop, quick_copy(shop, trio.target), folder / SAMPLES)
    schedule = replace(
        for_drafts(shop.recipe), batch_tokens=recipe.batch_tokens, muon_rate=recipe.muon_rate, adam_rate=recipe.adam_rate,
        decay_share=recipe.decay_share,
    )  # fmt: skip
    settings = {
        "recipe": asdict(shop.recipe), "head": json.loads(json.dumps(asdict(head_recipe))), "together": asdict(recipe),
        "data": shop.data_card()["source"], "target_step": target_step,
    }  # fmt: skip
    Training(
        name=NAME, model=trio, loss=compiled(shop, joint_loss(trio, head_recipe.layers, head_recipe.steps, recipe.weight)),
        stream=BooksAndSamples(shop, folder / SAMPLES), recipe=schedule, checkpoints=CheckpointFolder(folder, NAME, settings),
        log_path=folder / f"{NAME}.csv", shares={"target.": recipe.target_share},
        validate=lambda: held_out_loss(shop, trio, head_recipe, recipe.weight),
    ).run(Budget(minutes=minutes))  # fmt: skip


@torch.no_grad()
def held_out_loss(shop: Workshop, trio: Trio, recipe: HeadRecipe, weight: float) -> float:
    """The same loss on held-out books."""
    length = shop.recipe.sequence_length
    stream = TokenStream(shop.tokens("valid"), shop.recipe.seed)
    rows = max(1, min(VALID_WINDOWS, shop.recipe.micro_tokens // length))
    loss, total = joint_loss(trio, recipe.layers, recipe.steps, weight), 0.0
    trio.eval()
    for _ in range(passes := max(1, VALID_WINDOWS // rows)):
        batch = stream.next_batch(rows, length, shop.device)
        with half_precision(shop.device):
            total += loss(Rows(batch, batch, torch.ones(rows, device=shop.device))).item()
    trio.train()
    return total / passes
