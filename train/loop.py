"""The training loop that target and draft share: micro-batches, schedule, checkpoints, a CSV of the losses."""

import csv
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from train.checkpoint import CheckpointFolder
from train.config import Recipe
from train.data import TokenArray
from train.optim import PairOptimizer, rate_factor
from train.precision import half_precision

LOG_EVERY, VALID_EVERY, SAVE_EVERY_SECONDS = 10, 100, 600.0

LossFunction = Callable[[Any], Tensor]  # a stream's batch → scalar mean loss


class Stream(Protocol):
    """Where batches come from; a run that goes on sets ``position`` to what it was."""

    position: int

    def next_batch(self, rows: int, length: int, device: torch.device) -> Any:
        """Token ids ``(rows, length + 1)``, or those and more, as the loss takes them."""


@dataclass(frozen=True)
class Budget:
    """How long to train: optimizer steps, else tokens, else minutes of training time, each counted across interruptions."""

    steps: int | None = None
    minutes: float | None = None
    tokens: float | None = None

    def progress(self, step: int, tokens: int, seconds: float) -> float:
        if self.steps is not None:
            return step / self.steps
        if self.tokens is not None:
            return tokens / self.tokens
        return seconds / (60 * self.minutes) if self.minutes else 1.0


def next_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy in nats; logits ``(rows, length, vocab)``, labels ``(rows, length)``."""
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1))


def model_logits(model: nn.Module, tokens: Tensor) -> Tensor:
    logits: Tensor = model(input_ids=tokens, use_cache=False).logits
    return logits


@torch.no_grad()
def mean_loss(model: nn.Module, tokens: TokenArray, length: int, rows: int, max_windows: int | None = None) -> float:
    """Mean next-token loss (nats) over consecutive windows of held-out text."""
    device = next(model.parameters()).device
    count = (len(tokens) - 1) // length
    windows_read = min(count, max_windows or count)
    starts = [index * count // windows_read * length for index in range(windows_read)]
    model.eval()
    total = 0.0
    for first in range(0, len(starts), rows):
        windows = [torch.from_numpy(tokens[s : s + length + 1].astype("int64")) for s in starts[first : first + rows]]
        batch = torch.stack(windows).to(device)
        with half_precision(device):
            logits = model_logits(model, batch[:, :-1])
        total += next_token_loss(logits, batch[:, 1:]).item() * len(windows)
    model.train()
    return total / len(starts)


class LossLog:
    """``step, tokens, seconds, rate, train_loss, valid_loss`` in a CSV; what lies after a resumed step is dropped."""

    FIELDS = ("step", "tokens", "seconds", "rate", "train_loss", "valid_loss")

    def __init__(self, path: Path, resumed_step: int) -> None:
        self.path = path
        kept: list[list[str]] = []
        if path.exists():
            with path.open(newline="") as file:
                kept = [row for row in list(csv.reader(file))[1:] if row and int(row[0]) <= resumed_step]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([list(self.FIELDS), *kept])

    def add(self, step: int, tokens: int, seconds: float, rate: float, train: float, valid: float | None) -> None:
        with self.path.open("a", newline="") as file:
            shown = "" if valid is None else f"{valid:.4f}"
            csv.writer(file).writerow([step, tokens, f"{seconds:.1f}", f"{rate:.4f}", f"{train:.4f}", shown])


@dataclass
class Training:
    """One model's training run; ``run`` returns when the budget is spent."""

    name: str
    model: nn.Module
    loss: LossFunction
    stream: Stream
    recipe: Recipe
    checkpoints: CheckpointFolder
    log_path: Path
    validate: Callable[[], float]
    shares: Mapping[str, float] = field(default_factory=dict)  # of the rates, by how parameters' names begin

    def run(self, budget: Budget) -> int:
        """Train until the budget is spent; the number of steps made in all."""
        recipe, device = self.recipe, next(self.model.parameters()).device
        optimizer = PairOptimizer(self.model, recipe.muon_rate, recipe.adam_rate, self.shares)
        step, tokens, seconds = 0, 0, 0.0
        state = self.checkpoints.latest()
        if state is not None:
            self.model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            step, tokens, seconds = state["step"], state["tokens"], state["seconds"]
            self.stream.position = state["position"]
        first_step = step
        log = LossLog(self.log_path, step)

        def snapshot() -> dict[str, object]:
            return {
                "model": self.model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
                "tokens": tokens, "seconds": seconds, "position": self.stream.position,
            }  # fmt: skip

        decaying = recipe.decay_share >= 1 or budget.progress(step, tokens, seconds) > 1 - recipe.decay_share
        saved_at = time.monotonic()
        self.model.train()
        bar = tqdm(desc=self.name, unit="tok", unit_scale=True, initial=tokens, mininterval=1.0)
        while (progress := budget.progress(step, tokens, seconds)) < 1:
            started = time.monotonic()
            if progress > 1 - recipe.decay_share and not decaying:
                decaying = True
                self.checkpoints.write(snapshot(), self.checkpoints.folder / f"{self.name}-stable.pt")
            length = recipe.positions if decaying else recipe.sequence_length
            rows = max(1, recipe.micro_tokens // length)
            passes = max(1, recipe.batch_tokens // (rows * length))
            rate = rate_factor(step, progress, recipe.warmup_steps, recipe.decay_share)
            optimizer.set_rate(rate)
            total = 0.0
            for _ in range(passes):
                loss = self.loss(self.stream.next_batch(rows, length, device)) / passes
                loss.backward()
                total += loss.item()
            if not math.isfinite(total):
                raise FloatingPointError(f"{self.name}: the loss at step {step} is {total}")
            optimizer.step()
            step, tokens = step + 1, tokens + passes * rows * length
            seconds += time.monotonic() - started
            bar.update(passes * rows * length)
            bar.set_postfix(step=step, loss=f"{total:.3f}", rate=f"{rate:.2f}", refresh=False)
            if step % LOG_EVERY == 0:
                log.add(step, tokens, seconds, rate, total, self.validate() if step % VALID_EVERY == 0 else None)
            if time.monotonic() - saved_at > SAVE_EVERY_SECONDS:
                self.checkpoints.save(snapshot(), step)
                saved_at = time.monotonic()
        bar.close()
        if step > first_step:
            log.add(step, tokens, seconds, 0.0, total, self.validate())
            self.checkpoints.save(snapshot(), step)
        return step
