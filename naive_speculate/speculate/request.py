"""What a caller may ask for: prompts, parameters and options, checked and brought into one form."""

from collections.abc import Sequence as Seq
from typing import Any

from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.verifiers import VerifyStrategy

MAX_DRAFT_TOKENS = 64
Prompt = str | Seq[int]


def check_strategy(value: Any) -> VerifyStrategy:
    """The verification strategy by its name.

    Raises:
        ValueError: If there is none of this name.
    """
    try:
        return VerifyStrategy(value)
    except ValueError:
        raise ValueError(f"verify_strategy must be one of {', '.join(VerifyStrategy)}, got {value!r:.80}") from None


def check_window(num_draft_tokens: int | str) -> int | None:
    """The window size; None for "auto"."""
    if num_draft_tokens == "auto":
        return None
    whole = isinstance(num_draft_tokens, int) and not isinstance(num_draft_tokens, bool)
    if not whole or not 0 <= int(num_draft_tokens) <= MAX_DRAFT_TOKENS:
        raise ValueError(f"num_draft_tokens must be 'auto' or from 0 to {MAX_DRAFT_TOKENS}, got {num_draft_tokens!r:.80}")
    return int(num_draft_tokens)


def as_prompts(prompt: Any) -> tuple[list[Prompt], bool]:
    """The prompts as a list, and whether it was a single one."""
    if isinstance(prompt, str):
        return [prompt], True
    if not isinstance(prompt, Seq):
        raise ValueError(f"prompt must be text, token ids, or a list of either, got {type(prompt).__name__}")
    if not prompt:
        raise ValueError("prompt is an empty list")
    if all(isinstance(item, int) for item in prompt):
        return [list(prompt)], True
    if not all(isinstance(item, str | Seq) for item in prompt):
        raise ValueError("prompt must be text, token ids, or a list of either; this list mixes them")
    return list(prompt), False


def as_params(params: Any, count: int) -> list[SamplingParams]:
    """The parameters as a list with one a prompt."""
    if params is None:
        return [SamplingParams()] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, Seq) or not all(isinstance(one, SamplingParams) for one in params):
        raise ValueError(f"params must be SamplingParams or a list of them, got {type(params).__name__}")
    if len(params) != count:
        raise ValueError(f"params has {len(params)} entries for {count} prompts")
    return list(params)
