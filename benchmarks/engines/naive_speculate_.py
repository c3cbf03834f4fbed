# /// script
# dependencies = ["transformers==4.57.1", "torch==2.13.0", "numpy", "pydantic"]
# [tool.engines]
# without-dependencies = ["naive-speculate==0.1.0"]
# ///
"""The original naive-speculate, which owns this name on PyPI. It asks for Python 3.14, but runs on
an older one with annotations as text; transformers 5 refuses its way to crop a cache. It reads
Qwen3 only: its wrapper gets the tiny Llama."""

from collections.abc import Callable
from typing import Any

import annotations_as_text  # noqa: F401
import torch
from hugging_face import NO_PENALTY, NO_TOP_P, Passes, models, plain
from naive_speculate.config.strategy import SampleStrategy, VerifyStrategy
from naive_speculate.infer.inferencer.basic import BasicInferencer
from naive_speculate.infer.kvcache.dynamic_no_update import DynamicNoUpdateCache
from naive_speculate.infer.lm.qwen3 import Qwen3LanguageModel
from naive_speculate.speculate.scorer import Scorer
from serve import Answer, Ask, Engine, serve

from naive_speculate.speculate import SpeculativeDecoder  # type: ignore[attr-defined]
from naive_speculate.speculate.drafter import Drafter

ENGINE = Engine(
    packages=["naive-speculate", "transformers", "torch"],
    ways=["draft model"],
    rule="Accepted with probability min(1, p/q), at temperature 1 only.",
    source="naive_speculate/speculate/utils.py:51, speculative_sampling",
    counts="A step returns its number of accepted tokens; its program takes every step for k "
    "drafted ones, also a shorter one. It asks for Python 3.14; on an older one its annotations "
    "are kept as text here, and its models are wrapped as its own Qwen3.",
    skips=NO_TOP_P | NO_PENALTY,
)
RULES: Any = {
    True: (SampleStrategy.GREEDY, VerifyStrategy.GREEDY_MATCH),
    False: (SampleStrategy.RANDOM, VerifyStrategy.SPECULATIVE_SAMPLING),
}


def wrapped(model: Any) -> Any:
    """The model as it calls its own, without loading a Qwen3."""
    own = Qwen3LanguageModel.__new__(Qwen3LanguageModel)
    own.hf_model = model
    return own


def load(folder: str) -> Callable[[Ask], Answer]:
    target, draft = models(folder)
    passes = Passes(target)
    drafter, scorer = Drafter(BasicInferencer(wrapped(draft))), Scorer(wrapped(target))

    def draw(ask: Ask) -> Answer:
        torch.manual_seed(ask.seed)
        if ask.way == "plain":
            return Answer(plain(target, ask), passes=passes.take())
        decoder = SpeculativeDecoder(drafter, scorer, *(DynamicNoUpdateCache() for _ in "ab"))
        query, ids, accepted, steps = torch.tensor([ask.prompt]), list[int](), 0, 0
        while len(ids) < ask.max_tokens:
            step = decoder.decode(query, 3, *RULES[ask.temperature == 0])
            ids += step.token_ids[0].tolist()
            accepted, steps = accepted + step.num_accepted_tokens, steps + 1
            query = torch.tensor([ids[-2:] if step.num_accepted_tokens == 3 else ids[-1:]])
        return Answer(ids, 3 * steps, accepted, passes=passes.take())

    return draw


serve(ENGINE, load)
