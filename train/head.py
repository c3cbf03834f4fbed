"""Train a draft head for a target, by distillation, on the target's own text and books: the draft, which learns to read the
target's hidden states as well.

The states of three of the target's layers are fused as in EAGLE-3 (Li et al. 2025, arXiv 2503.01840), and added to the next
token's embedding, as in a module for multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437, section 2.2). A window's later
steps are simulated ("training-time test", EAGLE-3's section 3.2): in step j a place reads, in place of the target's states,
what the head itself gave out at the place before in step j - 1, and attends to the target's states only up to j places back. So
it learns from its own mistakes. The head may know the most frequent tokens only.
"""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

from naive_speculate.infer.llama.stored import REQUIRED
from train.checkpoint import CheckpointFolder, differences
from train.config import HeadRecipe
from train.data import TokenStream, save_json
from train.distil import (
    SMALLEST,
    TOTAL_VARIATION_WEIGHT,
    distance,
    for_drafts,
    log_with_rest,
    teacher_and_text,
    with_rest,
)
from train.errors import TrainingError
from train.export import written_anew
from train.loop import Budget, LossFunction, Training
from train.pipeline import Workshop, compiled
from train.precision import half_precision
from train.teacher import LIKELIEST, Lesson, Lessons, hidden_states, keep_states, likeliest

STEP_DECAY = 0.8  # weight of a simulated step's loss, times that of the one before
VALID_WINDOWS = 16


class Stage(NamedTuple):
    """A part of the training."""

    share: float  # of the minutes
    steps: int | None  # of a window, simulated; None for the recipe's
    tv_weight: float  # of total variation
    decay_share: float  # of the stage, in which the rates fall


STAGES = {
    "head-first": Stage(0.2, 1, TOTAL_VARIATION_WEIGHT, 0.0),
    "head": Stage(0.4, None, TOTAL_VARIATION_WEIGHT, 0.0),
    "head-polish": Stage(0.4, None, 1.0, 1.0),
}
"""By name. With one step alone a text is read four times as fast, and what is learned from that serves all."""


class HeadAttention(nn.Module):
    """Attention of a simulated step; weights under transformers' names."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
        width = config.num_attention_heads * self.head_dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(config.hidden_size, width, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, normed: Tensor, rotation: tuple[Tensor, Tensor], steps: list[tuple[Tensor, Tensor]]) -> Tensor:
        """``normed`` ``(rows, places, d)``; ``steps``: keys and values of the steps before, to which this one's are added.

        In step j, place i sees the target's places up to i - j, and of each later step m its own window's place, i - j + m.
        """
        queries, keys, values = (
            layer(normed).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        queries, keys = apply_rotary_pos_emb(queries, keys, *rotation)
        steps.append((keys, values))
        step, places = len(steps) - 1, normed.shape[1]
        first_keys, first_values = steps[0]
        back = torch.arange(places, device=normed.device)
        hidden = back[None] > back[:, None] - step
        scores = (queries @ first_keys.transpose(2, 3)).float().masked_fill(hidden, -torch.inf)
        window = [tuple(_later(states, step - m) for states in steps[m]) for m in range(1, step + 1)]
        own = [(queries * k).sum(-1, keepdim=True).float() for k, _ in window]
        weights = torch.softmax(torch.cat([scores, *own], -1) * self.head_dim**-0.5, -1).to(values.dtype)
        attended = weights[..., :places] @ first_values
        for m, (_, v) in enumerate(window):
            attended = attended + weights[..., places + m, None] * v
        result: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return result


class HeadLayer(nn.Module):
    """A decoder layer of the head."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.self_attn, self.mlp = HeadAttention(config), LlamaMLP(config)
        self.input_layernorm, self.post_attention_layernorm = (
            LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps) for _ in range(2)
        )

    def forward(self, hidden: Tensor, rotation: tuple[Tensor, Tensor], steps: list[tuple[Tensor, Tensor]]) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rotation, steps)
        result: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return result


class HeadModel(nn.Module):
    """A head, of whose target's tokens it knows some, ascending.

    It begins as the draft: nothing of the target's states reaches its layers yet, and of the same tokens it says the same.
    """

    d2t: Tensor
    t2d: Tensor

    def __init__(self, recipe: HeadRecipe, draft: LlamaForCausalLM, target_hidden_size: int, known: Tensor) -> None:
        super().__init__()
        self.config = draft.config
        d, vocab_size, epsilon = self.config.hidden_size, self.config.vocab_size, self.config.rms_norm_eps
        self.embed_tokens = nn.Embedding(vocab_size, d)
        self.fc = nn.Linear(len(recipe.layers) * target_hidden_size, d, bias=False)
        self.hidden_norm = LlamaRMSNorm(d, eps=epsilon)
        self.state_proj = nn.Linear(d, d, bias=False)
        self.layers = nn.ModuleList(HeadLayer(self.config) for _ in range(self.config.num_hidden_layers))
        self.norm = LlamaRMSNorm(d, eps=epsilon)
        self.lm_head = nn.Linear(d, len(known), bias=False)
        self.rotary = LlamaRotaryEmbedding(self.config)
        self.register_buffer("d2t", known - torch.arange(len(known)))
        self.register_buffer("t2d", torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, known, True))
        nn.init.zeros_(self.state_proj.weight)
        self.layers.load_state_dict(draft.model.layers.state_dict())
        self.norm.load_state_dict(draft.model.norm.state_dict())
        with torch.no_grad():
            self.embed_tokens.weight.copy_(draft.model.embed_tokens.weight)
            self.lm_head.weight.copy_(draft.lm_head.weight.cpu()[known])

    @property
    def known(self) -> Tensor:
        """The target's ids of the tokens among the logits, ascending, int64 ``(known,)``."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def forward(self, tokens: Tensor, features: Tensor, num_steps: int) -> list[Tensor]:
        """Logits of each simulated step, ``(rows, places, known)``; those of step j mean something from place j on.

        ``tokens`` ``(rows, places)`` stand beside the target's ``features`` at the tokens before them.
        """
        states, embedded = self.fc(features), self.embed_tokens(tokens)
        places = torch.arange(tokens.shape[1], device=tokens.device)[None]
        rotation = self.rotary(embedded, places)  # in float32, as when it decodes
        steps: list[list[tuple[Tensor, Tensor]]] = [[] for _ in self.layers]
        found = []
        for _ in range(num_steps):
            hidden = embedded + self.state_proj(self.hidden_norm(states))
            for layer, before in zip(self.layers, steps, strict=True):
                hidden = layer(hidden, rotation, before)
            found.append(self.lm_head(self.norm(hidden)))
            states = _later(hidden, 1, dim=1)
        return found


def head_loss(head: HeadModel, recipe: HeadRecipe, tv_weight: float, num_steps: int | None = None) -> LossFunction:
    """Total variation and forward KL of all simulated steps from what a ``Lesson`` says of the target, as for a draft."""
    steps, place = num_steps or recipe.steps, head.t2d.cumsum(0) - 1  # of a known token among the logits

    def loss(lesson: Lesson) -> Tensor:
        assert lesson.states is not None
        told, p = lesson.likeliest[:, 1:], with_rest(lesson.probs[:, 1:])
        known = head.t2d[told]
        ids = torch.where(known, place[told], 0)
        total, weight = p.new_zeros(()), 0.0
        for step, logits in enumerate(head(lesson.tokens[:, 1:], lesson.states[:, :-1], steps)):
            log_q = torch.log_softmax(logits[:, step:].float(), -1).gather(-1, ids[:, step:])
            log_q = log_with_rest(log_q.masked_fill(~known[:, step:], math.log(SMALLEST)))
            total = total + STEP_DECAY**step * distance(p[:, step:], log_q, tv_weight)
            weight += STEP_DECAY**step
        return total / weight

    return loss


def frequent_tokens(shop: Workshop, count: int | None) -> Tensor:
    """The ``count`` most frequent tokens of the training text, ascending; all for None."""
    size = shop.recipe.vocab_size
    if count is None or count >= size:
        return torch.arange(size)
    frequencies = np.bincount(shop.tokens("train"), minlength=size)
    return torch.from_numpy(np.sort(np.argsort(-frequencies, kind="stable")[:count]).astype(np.int64))


def begin_head(shop: Workshop, draft: LlamaForCausalLM, recipe: HeadRecipe) -> HeadModel:
    """A head that begins as the draft, or one with the weights of an exported one.

    Raises:
        TrainingError: If there is no such head, or it has another shape.
    """
    torch.manual_seed(shop.recipe.seed)
    known = frequent_tokens(shop, recipe.known_tokens)
    head = HeadModel(recipe, draft, shop.recipe.target.hidden, known).to(shop.device)
    if shop.init_head is not None:
        path = shop.init_head / "model.safetensors"
        if not path.is_file():
            raise TrainingError(f"--init-head: no exported head in {shop.init_head}")
        own, given = head.state_dict(), load_file(path)
        if bool(head.t2d.all()):  # then `export_head` leaves these out
            given |= {name: own[name] for name in ("d2t", "t2d")}
        there, here = ({name: list(tensor.shape) for name, tensor in tensors.items()} for tensors in (given, own))
        if found := differences(there, here):
            raise TrainingError(f"--init-head: {shop.init_head} is of another shape ({'; '.join(found)})")
        head.load_state_dict(given)
    return head


def train_head(
    shop: Workshop, target: LlamaForCausalLM, draft: LlamaForCausalLM, target_step: int, recipe: HeadRecipe, minutes: float
) -> HeadModel:
    """Distil a head from the target, in `STAGES`."""
    head = begin_head(shop, draft, recipe)
    teacher, folder, text = teacher_and_text(shop, target, target_step)
    keep_states(shop, teacher, text, recipe.layers)
    lessons = Lessons(text, shop.recipe.sequence_length, shop.recipe.seed + 5, recipe.layers)
    schedule = replace(for_drafts(shop.recipe), muon_rate=recipe.muon_rate, adam_rate=recipe.adam_rate)
    settings = {
        "recipe": asdict(shop.recipe), "head": json.loads(json.dumps(asdict(recipe))),
        "data": shop.data_card()["source"], "target_step": target_step,
        "likeliest": LIKELIEST, "stages": {name: list(stage) for name, stage in STAGES.items()},
        "init_head": shop.init_head.name if shop.init_head else None,
    }  # fmt: skip
    for name, stage in STAGES.items():
        Training(
            name=name, model=head, loss=compiled(shop, head_loss(head, recipe, stage.tv_weight, stage.steps)), stream=lessons,
            recipe=replace(schedule, decay_share=stage.decay_share), checkpoints=CheckpointFolder(folder, name, settings),
            log_path=folder / f"{name}.csv", validate=lambda: held_out_variation(shop, teacher, head, recipe),
        ).run(Budget(minutes=minutes * stage.share))  # fmt: skip
    return head


@torch.no_grad()
def held_out_variation(shop: Workshop, teacher: LlamaForCausalLM, head: HeadModel, recipe: HeadRecipe) -> float:
    """Mean total variation of all simulated steps on held-out text, as far as the likeliest tokens tell: what is accepted at
    temperature 1 is one minus it at most."""
    tokens, length = TokenStream(shop.tokens("valid"), shop.recipe.seed), shop.recipe.sequence_length
    loss = head_loss(head, recipe, 1.0)
    head.eval()
    total = 0.0
    rows = max(1, min(VALID_WINDOWS, shop.recipe.micro_tokens // length))
    for _ in range(passes := max(1, VALID_WINDOWS // rows)):
        with half_precision(shop.device):
            batch = tokens.next_batch(rows, length, shop.device)[:, :-1]
            total += loss(Lesson(batch, *likeliest(teacher, batch), hidden_states(teacher, batch, recipe.layers))).item()
    head.train()
    return total / passes


def export_head(head: HeadModel, recipe: HeadRecipe, folder: Path) -> None:
    """Write ``folder`` anew, float16, as ``load_pair(…, head=folder)`` loads it."""
    tensors = {name: tensor.detach().cpu() for name, tensor in head.state_dict().items() if not name.startswith("rotary")}
    if bool(head.t2d.all()):
        tensors = {name: tensor for name, tensor in tensors.items() if name not in ("d2t", "t2d")}
    halves = {name: (t.half() if t.is_floating_point() else t).contiguous() for name, t in tensors.items()}
    told = head.config.to_dict()  # of it, what `load_pair` needs to read the head without transformers' model classes
    layer = {"model_type": "llama", **{name: told[name] for name in REQUIRED}, "dtype": "float16", "tie_word_embeddings": False}
    config = {
        "architectures": ["Eagle3AddingHead"],
        "draft_vocab_size": head.lm_head.out_features,
        "target_hidden_size": head.fc.in_features // len(recipe.layers),
        "eagle_aux_hidden_state_layer_ids": list(recipe.layers),
        "transformer_layer_config": layer,
    }
    with written_anew(folder) as partial:
        save_file(halves, partial / "model.safetensors", {"format": "pt"})
        save_json(config, partial / "config.json")


def _later(states: Tensor, count: int, dim: int = 2) -> Tensor:
    """Each place's states ``count`` places later; zeros before."""
    if not count:
        return states
    places = states.shape[dim]
    padding = [0, 0] * (states.dim() - 1 - dim) + [count, 0]
    return F.pad(states, padding).narrow(dim, 0, places)
