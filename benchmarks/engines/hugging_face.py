"""What adapters of libraries around transformers models share: the models, and the control. It runs
in an engine's own environment."""

from typing import Any

import torch
from serve import Ask
from transformers import AutoModelForCausalLM, GenerationConfig

TOP_P, PENALTY = "T = 0.7, top-p 0.9", "T = 1, repetition penalty 1.3"
NO_TOP_P = {TOP_P: "It has no top-p."}
NO_PENALTY = {PENALTY: "It has no repetition penalty."}


class Passes:
    """Counts the forwards of a model from now on."""

    def __init__(self, model: Any) -> None:
        self.count = 0
        model.register_forward_hook(self._add)

    def _add(self, *_: Any) -> None:
        self.count += 1

    def take(self) -> int:
        """Those since it was last asked."""
        count, self.count = self.count, 0
        return count


def models(folder: str) -> tuple[Any, Any]:
    """Target and draft, in float32."""
    torch.set_num_threads(1)
    target, draft = (
        AutoModelForCausalLM.from_pretrained(f"{folder}/{name}", dtype=torch.float32).eval()
        for name in ("target", "draft")
    )
    return target, draft


def settings(ask: Ask) -> GenerationConfig:
    """The request as transformers' configuration."""
    sampling: dict[str, Any] = {"temperature": ask.temperature, "top_p": ask.top_p, "top_k": 0}
    return GenerationConfig(
        max_new_tokens=ask.max_tokens,
        do_sample=ask.temperature > 0,
        repetition_penalty=ask.repetition_penalty,
        eos_token_id=0,
        pad_token_id=0,
        **(sampling if ask.temperature else {}),
        **extra(**ask.options),
    )


def extra(
    min_p: float | None = None,
    min_tokens: int | None = None,
    no_repeat_ngram_size: int = 0,
    logit_bias: dict[str, float] | None = None,
    forbidden: tuple[int, ...] = (),
    stop: str | None = None,
    **_: Any,
) -> dict[str, Any]:
    """The options' fields."""
    bias = {(int(token),): value for token, value in (logit_bias or {}).items()}
    known: dict[str, Any] = {"min_p": min_p, "min_new_tokens": min_tokens, "stop_strings": stop}
    known |= {"sequence_bias": bias or None, "suppress_tokens": list(forbidden) or None}
    known |= {"no_repeat_ngram_size": no_repeat_ngram_size or None}
    return {name: value for name, value in known.items() if value is not None}


def plain(target: Any, ask: Ask) -> list[int]:
    """transformers' own plain decoding: the control of engines without one."""
    ids = torch.tensor([ask.prompt])
    tokens = target.generate(
        ids, attention_mask=torch.ones_like(ids), generation_config=settings(ask)
    )
    return list(tokens[0, len(ask.prompt) :].tolist())


class Identity:
    """A tokenizer whose texts are lists of token ids, for engines that take and give texts."""

    eos_token_id = 0
    eos_token = pad_token = "<e>"

    def encode(self, ids: list[int], return_tensors: str = "pt") -> torch.Tensor:
        """Token ids, shape `[1, tokens]`."""
        return torch.tensor([ids])

    def decode(self, ids: torch.Tensor, skip_special_tokens: bool = True) -> list[int]:
        """The same as a list."""
        return list(ids.tolist())
