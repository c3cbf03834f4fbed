"""Stage 2: the training loop of all drafters, with checkpoints, held-out figures and the time
left."""

import csv
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from train.batches import Batch, Data
from train.data import whole_file
from train.progress import Progress

CHECKPOINT_SECONDS = 600.0  # between checkpoints, and held-out figures
CHECKPOINTS = 8  # of a short training
RATE = 0.001  # adamW's learning rate
WARMUP = 30  # updates during which the rate rises
DECAY = 0.5  # last share of the training, in which the rate falls to zero


class Training:
    """Trains one model for a given time, over all runs together.

    Args:
        name: Of its checkpoint and its CSV file.
        model: What is trained, on its device. Of a batch it returns the loss, and the accepted
            shares per draft step at temperatures 1 and 0.
        data: The conversations.
        work: Folder of the checkpoint.
        settings: What a checkpoint must agree with.
        batch_tokens: Tokens per update, prompts and padding included.
        seed: Of the order of conversations.
    """

    def __init__(
        self,
        name: str,
        model: nn.Module,
        data: Data,
        work: Path,
        settings: dict[str, Any],
        batch_tokens: int,
        seed: int,
    ) -> None:
        self.name = name
        self.model = model
        self.data = data
        self.work = work
        self.settings = settings
        self.batch_tokens, self.seed = batch_tokens, seed
        learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.device = learned[0].device
        self.optimizer = torch.optim.AdamW(
            learned, lr=RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )
        able = {"cpu": torch.cpu._is_avx512_bf16_supported, "cuda": torch.cuda.is_bf16_supported}
        self.mixed = able.get(self.device.type, lambda: False)()  # products in bfloat16
        self.updates, self.epoch, self.tokens, self.seconds = 0, 0, 0, 0.0
        self.path = work / f"{name}.pt"

    def run(self, seconds: float, updates: int | None = None) -> dict[str, Any]:
        """Train for so many seconds, or updates, over all runs together, and return the last
        held-out figures."""
        self.resume()
        progress = Progress(self.name, updates or int(seconds), "updates" if updates else "seconds")
        saved = time.monotonic()
        pause = CHECKPOINT_SECONDS if updates else min(CHECKPOINT_SECONDS, seconds / CHECKPOINTS)
        while self.share(seconds, updates) < 1:
            before, began = self.updates, time.monotonic()
            for batch in self.data.training(self.batch_tokens, self.seed + self.epoch):
                loss = self.update(batch, self.share(seconds, updates))
                took = time.monotonic() - began
                self.seconds += took
                progress.done = self.updates if updates else int(self.seconds)
                progress.add(
                    0, f"{self.updates} updates, {self.tokens:,} answer tokens, loss {loss:.3f}"
                )
                if time.monotonic() - saved >= pause:
                    self.save()
                    self.measure(loss)
                    saved = time.monotonic()
                if self.share(seconds, updates) >= 1:
                    break
                began = time.monotonic()  # the next batch's time counts, a checkpoint's does not
            else:
                self.epoch += 1
            if self.updates == before:
                raise ValueError(f"--work {self.work}: it holds no data")
        self.save()
        return self.measure(0.0)

    def share(self, seconds: float, updates: int | None) -> float:
        """How much of the training is done, from 0 to 1."""
        return self.updates / updates if updates else self.seconds / seconds

    def update(self, batch: Batch, spent: float) -> float:
        """One update; `spent` is the share of the training that is done."""
        warm = min(1.0, (self.updates + 1) / WARMUP)
        group = self.optimizer.param_groups[0]
        group["lr"] = RATE * warm * min(1.0, max(0.0, 1 - spent) / DECAY)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed):
            loss, _ = self.model(batch.to(self.device))
        if not torch.isfinite(loss):
            raise ValueError(
                f"{self.name}: the loss is {loss.item()} after {self.updates} updates; try a lower"
                " rate"
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        self.tokens += len(batch.rows)
        return loss.item()

    @torch.no_grad()
    def measure(self, loss: float) -> dict[str, Any]:
        """Accepted shares per draft step on held-out conversations, and the tokens per step that
        they promise."""
        shares, weight = [], 0
        for batch in self.data.held_out(self.batch_tokens):
            shares.append(torch.stack(self.model(batch.to(self.device))[1]) * len(batch.rows))
            weight += len(batch.rows)
        mean = torch.stack(shares).sum(0) / weight
        promised = 1 + mean.cumprod(0).sum(0)
        figures = {
            "updates": self.updates,
            "answer_tokens": self.tokens,
            "minutes": round(self.seconds / 60, 1),
            "loss": round(loss, 4),
            "sampled": [round(x, 4) for x in mean[:, 0].tolist()],
            "greedy": [round(x, 4) for x in mean[:, 1].tolist()],
            "sampled_tokens_per_step": round(promised[0].item(), 3),
            "greedy_tokens_per_step": round(promised[1].item(), 3),
        }
        print(f"{self.name}: held out: {figures}", flush=True)
        with (self.work / f"{self.name}.csv").open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(figures.values())
        return figures

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        state = {
            "settings": self.settings,
            "model": self.model.state_dict(),
            "updates": self.updates,
            "epoch": self.epoch + 1,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "optimizer": self.optimizer.state_dict(),
        }
        with whole_file(self.path) as partial:
            torch.save(state, partial)

    def resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        if not self.path.exists():
            return
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise ValueError(
                f"{self.path} is no readable checkpoint ({type(error).__name__})"
            ) from None
        if not isinstance(state, dict) or not isinstance(state.get("settings", {}), dict):
            raise ValueError(f"{self.path} is no checkpoint")
        if not state.keys() >= {
            "optimizer",
            "settings",
            "model",
            "updates",
            "epoch",
            "tokens",
            "seconds",
        }:
            raise ValueError(
                f"{self.path} was written by an earlier version; remove it to train from the"
                " beginning"
            )
        for name, value in self.settings.items():
            if state["settings"].get(name) != value:
                raise ValueError(
                    f"{self.path} was trained with {name} {state['settings'].get(name)}, not"
                    f" {value}"
                )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates, self.epoch, self.tokens, self.seconds = (
            state[k] for k in ("updates", "epoch", "tokens", "seconds")
        )
