# /// script
# dependencies = ["transformers==5.24.0", "torch==2.13.0", "numpy", "scikit-learn"]
# ///
"""transformers' assisted generation, with a draft model and with prompt lookup."""

from collections.abc import Callable
from typing import Any

import torch
from hugging_face import Passes, models, settings
from serve import Answer, Ask, Engine, serve
from transformers import AutoTokenizer

ENGINE = Engine(
    packages=["transformers", "torch"],
    ways=["draft model", "prompt lookup"],
    rule="Accepted with probability min(1, p/q); a copied token counts as drawn with certainty. "
    "Its option assistant_ensemble_weight is lossy, as its documentation says; it is off here.",
    source="transformers/generation/utils.py:4479, _speculative_sampling",
    options=[
        *("logit bias", "forbidden token", "no repeated pair", "grammar", "min-p", "stop string"),
        *("minimum length", "seed"),
    ],
    counts="It reports no acceptance figure.",
)


def load(folder: str) -> Callable[[Ask], Answer]:
    target, draft = models(folder)
    draft.generation_config.num_assistant_tokens = 3
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    passes = Passes(target)
    tokenizer = AutoTokenizer.from_pretrained(f"{folder}/target")
    ways: dict[str, dict[str, Any]] = {
        "draft model": {"assistant_model": draft},
        "prompt lookup": {"prompt_lookup_num_tokens": 3},
    }

    def draw(ask: Ask) -> Answer:
        ids, greedy = torch.tensor([ask.prompt]), ask.temperature == 0
        torch.manual_seed(ask.seed)
        result = target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=settings(ask),
            return_dict_in_generate=True,
            output_scores=greedy,
            tokenizer=tokenizer if "stop" in ask.options else None,
            prefix_allowed_tokens_fn=(lambda *_: ask.options["allowed"])
            if "allowed" in ask.options
            else None,
            **ways.get(ask.way, {}),
        )
        tokens = result.sequences[0, len(ask.prompt) :]
        logprobs = None
        if greedy:
            scores = torch.cat(result.scores).log_softmax(-1)
            logprobs = scores.gather(-1, tokens[:, None])[:, 0].tolist()
        return Answer(tokens.tolist(), passes=passes.take(), logprobs=logprobs)

    return draw


serve(ENGINE, load)
