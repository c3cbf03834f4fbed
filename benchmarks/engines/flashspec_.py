# /// script
# dependencies = ["flashspec==0.3.1", "transformers==5.24.0", "torch==2.13.0", "numpy", "pydantic"]
# ///
"""flashspec's lossless variant with a draft model, on a CPU."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
from flashspec.engine import HuggingFaceDrafter, TargetModel
from hugging_face import NO_PENALTY, Passes, models, plain
from serve import Answer, Ask, Engine, serve

ENGINE = Engine(
    packages=["flashspec", "transformers", "torch"],
    ways=["draft model"],
    rule="Accepted with probability min(1, p/q); top_p is accepted as an option and never used.",
    source="flashspec/sampling/rejection.py:611, rejection_step",
    counts="Acceptance rates per step, over all drafted tokens. By default it copies up to six "
    "tokens from the text, and has the draft model draft two where it finds none; here the model "
    "drafts alone.",
    skips=NO_PENALTY,
)


def load(folder: str) -> Callable[[Ask], Answer]:
    target, draft = models(folder)
    device, passes = torch.device("cpu"), Passes(target)

    @cache
    def engine(temperature: float, top_p: float) -> Any:
        drafter = HuggingFaceDrafter("draft", device, torch.float32, model=draft)
        drafter.set_temperature(temperature)
        sampling = SamplingConfig(temperature=temperature, top_p=top_p, gamma=3)
        config = FlashSpecConfig(
            device="cpu",
            sampling=sampling,
            drafter_strategy="bandit",
            bandit=BanditConfig(n_arms=1),
        )
        judge = TargetModel("target", device, torch.float32, model=target)
        return SpeculativeEngine(config, [drafter], judge)

    def draw(ask: Ask) -> Answer:
        torch.manual_seed(ask.seed)
        if ask.way == "plain":
            return Answer(plain(target, ask), passes=passes.take())
        generated = engine(ask.temperature, ask.top_p).generate(
            torch.tensor([ask.prompt]), max_new_tokens=ask.max_tokens
        )
        return Answer(generated.output_ids[0].tolist(), passes=passes.take())

    return draw


serve(ENGINE, load)
