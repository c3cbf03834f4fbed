# /// script
# dependencies = ["transformers==5.23.0", "torch==2.13.0", "numpy", "scikit-learn"]
# ///
"""transformers' assisted generation, with a draft model and with prompt lookup."""

from collections.abc import Callable
from typing import Any

import torch
from serve import Answer, Ask, Engine, serve
from transformers import AutoModelForCausalLM, GenerationConfig

ENGINE = Engine(
    packages=["transformers", "torch"],
    ways=["draft model", "prompt lookup"],
    rule="Accepted with probability min(1, p/q); a copied token counts as drawn with certainty.",
    source="generation/utils.py, _speculative_sampling",
    counts="It reports no acceptance figure.",
)


def load(folder: str) -> Callable[[Ask], Answer]:
    torch.set_num_threads(1)
    target = AutoModelForCausalLM.from_pretrained(f"{folder}/target", dtype=torch.float32)
    draft = AutoModelForCausalLM.from_pretrained(f"{folder}/draft", dtype=torch.float32)
    draft.generation_config.num_assistant_tokens = 3
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0

    def draw(ask: Ask) -> Answer:
        sampling: dict[str, Any] = {"temperature": ask.temperature, "top_p": ask.top_p, "top_k": 0}
        config = GenerationConfig(
            max_new_tokens=ask.max_tokens,
            do_sample=ask.temperature > 0,
            repetition_penalty=ask.repetition_penalty,
            eos_token_id=0,
            pad_token_id=0,
            **(sampling if ask.temperature else {}),
        )
        ways: dict[str, dict[str, Any]] = {
            "draft model": {"assistant_model": draft},
            "prompt lookup": {"prompt_lookup_num_tokens": 3},
        }
        ids = torch.tensor([ask.prompt])
        torch.manual_seed(ask.seed)
        mask = torch.ones_like(ids)
        found = target.generate(
            ids, attention_mask=mask, generation_config=config, **ways.get(ask.way, {})
        )
        return Answer(found[0, len(ask.prompt) :].tolist())

    return draw


serve(ENGINE, load)
