"""Train a draft head for a target (EAGLE-3, Li et al. 2025, arXiv 2503.01840), by distillation, on the target's own text.

A window's later steps are simulated ("training-time test", section 3.2): in step j a place reads, in place of the target's
states, what the head itself gave out at the place before in step j - 1, and attends to the target's states only up to j places
back. So it learns from its own mistakes. The head may be narrower than the target, and may know the most frequent tokens only.
"""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

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
    POLISH_SHARE,
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
FIRST_SHARE = 0.4
STAGES: dict[str, tuple[float, int | None, float]] = {
    "head-first": (FIRST_SHARE, 1, TOTAL_VARIATION_WEIGHT),
    "head": (1 - FIRST_SHARE - POLISH_SHARE, None, TOTAL_VARIATION_WEIGHT),
    "head-polish": (POLISH_SHARE, None, 1.0),
}
"""By name: the share of the minutes, how many steps are simulated (None for the recipe's), the weight of total variation. With
one step alone a text is read four times as fast, and what is learned from that serves all."""


class HeadAttention(nn.Module):
    """Attention of a simulated step; weights under transformers' names."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
        width = config.num_attention_heads * self.head_dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(2 * config.hidden_size, width, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, both: Tensor, rotation: tuple[Tensor, Tensor], steps: list[tuple[Tensor, Tensor]]) -> Tensor:
        """``both`` ``(rows, places, 2 d)``; ``steps``: keys and values of the steps before, to which this one's are added.

        In step j, place i sees the target's places up to i - j, and of each later step m its own window's place, i - j + m.
        """
        queries, keys, values = (
            layer(both).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        queries, keys = apply_rotary_pos_emb(queries, keys, *rotation)
        steps.append((keys, values))
        step, places = len(steps) - 1, both.shape[1]
        first_keys, first_values = steps[0]
        back = torch.arange(places, device=both.device)
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
    """The head's decoder layer."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.self_attn, self.mlp = HeadAttention(config), LlamaMLP(config)
        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm = (
            LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps) for _ in range(3)
        )

    def forward(
        self, embedded: Tensor, states: Tensor, rotation: tuple[Tensor, Tensor], steps: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        both = torch.cat([self.input_layernorm(embedded), self.hidden_norm(states)], -1)
        states = states + self.self_attn(both, rotation, steps)
        result: Tensor = states + self.mlp(self.post_attention_layernorm(states))
        return result


class HeadModel(nn.Module):
    """A head whose ``state_dict`` has the names of vLLM's speculators; its embeddings begin as the target's, of whose tokens it
    knows some, ascending."""

    d2t: Tensor
    t2d: Tensor

    def __init__(self, recipe: HeadRecipe, target: LlamaForCausalLM, known: Tensor) -> None:
        super().__init__()
        self.config = recipe.layer_config(target.config)
        d, vocab_size = recipe.hidden, target.config.vocab_size
        self.embed_tokens = nn.Embedding(vocab_size, d)
        self.fc = nn.Linear(len(recipe.layers) * target.config.hidden_size, d, bias=False)
        self.layers = nn.ModuleList([HeadLayer(self.config)])
        self.norm = LlamaRMSNorm(d, eps=self.config.rms_norm_eps)
        self.lm_head = nn.Linear(d, len(known), bias=False)
        self.rotary = LlamaRotaryEmbedding(self.config)
        self.register_buffer("d2t", known - torch.arange(len(known)))
        self.register_buffer("t2d", torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, known, True))
        begin = _narrowed(target.model.embed_tokens.weight.detach().cpu(), d)
        with torch.no_grad():
            self.embed_tokens.weight.copy_(begin)
            self.lm_head.weight.copy_(begin[known])

    def forward(self, tokens: Tensor, features: Tensor, num_steps: int) -> list[Tensor]:
        """Logits of each simulated step, ``(rows, places, known)``; those of step j mean something from place j on.

        ``tokens`` ``(rows, places)`` stand beside the target's ``features`` at the tokens before them.
        """
        states, embedded = self.fc(features), self.embed_tokens(tokens)
        places = torch.arange(tokens.shape[1], device=tokens.device)[None]
        rotation = self.rotary(states, places)
        steps: list[tuple[Tensor, Tensor]] = []
        found, (layer,) = [], self.layers
        for _ in range(num_steps):
            states = layer(embedded, states, rotation, steps)
            found.append(self.lm_head(self.norm(states)))
            states = _later(states, 1, dim=1)
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


def begin_head(shop: Workshop, target: LlamaForCausalLM, recipe: HeadRecipe) -> HeadModel:
    """A new head, or one with the weights of an exported one.

    Raises:
        TrainingError: If there is no such head, or it has another shape.
    """
    torch.manual_seed(shop.recipe.seed)
    head = HeadModel(recipe, target, frequent_tokens(shop, recipe.known_tokens)).to(shop.device)
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


def train_head(shop: Workshop, target: LlamaForCausalLM, target_step: int, recipe: HeadRecipe, minutes: float) -> HeadModel:
    """Distil a head from the target, in `STAGES`."""
    head = begin_head(shop, target, recipe)
    teacher, folder, text, own = teacher_and_text(shop, target, target_step)
    keep_states(shop, teacher, text, recipe.layers, own)
    lessons = Lessons(text, shop.recipe.sequence_length, shop.recipe.seed + 5, recipe.layers, own)
    schedule = replace(for_drafts(shop.recipe), muon_rate=recipe.muon_rate, adam_rate=recipe.adam_rate)
    settings = {
        "recipe": asdict(shop.recipe), "head": json.loads(json.dumps(asdict(recipe))),
        "data": shop.data_card()["source"], "target_step": target_step,
        "likeliest": LIKELIEST, "windows": own, "stages": {name: list(stage) for name, stage in STAGES.items()},
        "init_head": shop.init_head.name if shop.init_head else None,
    }  # fmt: skip
    for name, (share, num_steps, tv_weight) in STAGES.items():
        Training(
            name=name, model=head, loss=compiled(shop, head_loss(head, recipe, tv_weight, num_steps)), stream=lessons,
            recipe=schedule, checkpoints=CheckpointFolder(folder, name, settings), log_path=folder / f"{name}.csv",
            validate=lambda: held_out_variation(shop, teacher, head, recipe),
        ).run(Budget(minutes=minutes * share))  # fmt: skip
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
    """Write ``folder`` anew in the layout of vLLM's speculators, float16, as ``load_pair(…, head=folder)`` loads it."""
    tensors = {name: tensor.detach().cpu() for name, tensor in head.state_dict().items() if not name.startswith("rotary")}
    if bool(head.t2d.all()):
        tensors = {name: tensor for name, tensor in tensors.items() if name not in ("d2t", "t2d")}
    halves = {name: (t.half() if t.is_floating_point() else t).contiguous() for name, t in tensors.items()}
    layer = head.config.to_dict()  # of it, what `load_pair` needs to read the head without transformers' model classes
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": head.lm_head.out_features,
        "norm_before_residual": False,
        "target_hidden_size": head.fc.in_features // len(recipe.layers),
        "eagle_aux_hidden_state_layer_ids": list(recipe.layers),
        "tie_word_embeddings": False,
        "transformer_layer_config": {"model_type": "llama", **{name: layer[name] for name in REQUIRED}, "dtype": "float16"},
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": recipe.steps}],
            "verifier": {"name_or_path": None, "architectures": ["LlamaForCausalLM"]},
        },
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


def _narrowed(embeddings: Tensor, width: int) -> Tensor:
    """The embeddings in their ``width`` strongest directions; a wider table has zeros, and a little noise, in the rest."""
    if width == embeddings.shape[1]:
        return embeddings.clone()
    directions = torch.linalg.svd(embeddings.float(), full_matrices=False)[2][:width]
    found = embeddings.float() @ directions.T
    missing = width - found.shape[1]
    return torch.cat([found, 0.02 * torch.randn(len(found), missing)], 1) if missing else found
