# /// script
# dependencies = ["economize==0.3.2", "transformers==5.23.0", "torch==2.13.0", "numpy"]
# ///
"""economize's draft model and prompt lookup, with its lossless verifier of samples."""

from collections.abc import Callable
from functools import cache
from typing import Any

import economize
import torch
from economize.integrations.generate import generate
from economize.techniques.draft_model import DraftModelConfig
from economize.techniques.lookup import LookupConfig
from hugging_face import models, plain, settings
from serve import Answer, Ask, Engine, serve

ENGINE = Engine(
    packages=["economize", "transformers", "torch"],
    ways=["draft model", "prompt lookup"],
    rule="Accepted with probability min(1, p/q) by its verifier “rejection”.",
    source="economize/decoding/verifiers.py:200, RejectionVerifier",
    counts="Drafted and accepted tokens of each step, also those after the end of a text. With "
    "transformers 5.24.0 its generate ends with a ConfigError, so it is tried with 5.23.0.",
)


def load(folder: str) -> Callable[[Ask], Answer]:
    @cache
    def model(way: str) -> Any:
        target, _ = models(folder)
        if way == "draft model":
            return economize.apply(target, DraftModelConfig(model=f"{folder}/draft"))
        return economize.apply(target, LookupConfig()) if way != "plain" else target

    def draw(ask: Ask) -> Answer:
        torch.manual_seed(ask.seed)
        if ask.way == "plain":
            return Answer(plain(model("plain"), ask))
        verifier = "rejection" if ask.temperature else None
        ids = torch.tensor([ask.prompt])
        results: list[Any] = []
        tokens = generate(
            model(ask.way),
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=settings(ask),
            decoding=economize.DecodeConfig(cycle_length=4, verifier=verifier),
            on_results=results.extend,
        )
        steps = results[0].acceptance
        drafted, accepted = (sum(pair[i] for pair in steps) for i in (0, 1))
        passes = len(steps) + 1  # one over the prompt
        return Answer(tokens[0, len(ask.prompt) :].tolist(), drafted, accepted, passes=passes)

    return draw


serve(ENGINE, load)
