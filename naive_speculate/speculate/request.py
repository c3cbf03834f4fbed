"""What a caller may ask for: one object per run, and the forms that `generate` takes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.sequence import Detail, DraftSampling
from naive_speculate.speculate.sequence import GivenDraft as GivenDraft
from naive_speculate.speculate.sequence import Prompt as Prompt
from naive_speculate.speculate.verify import VerifyStrategy

MAX_DRAFT_TOKENS = 64
MAX_GIVEN = 200


@dataclass(frozen=True, slots=True)
class Request:
    """One run to make. It is checked on admission (`Admission.run`)."""

    prompt: Prompt  # text, or token ids
    # how tokens are chosen and when generation ends; with n > 1 each sequence has its own row in the events
    params: SamplingParams = field(default_factory=SamplingParams)
    num_draft_tokens: int | str = 5  # tokens to draft per step, 0 for plain decoding, or "auto"
    verify_strategy: VerifyStrategy | str = VerifyStrategy.SPECULATIVE_SAMPLING  # how drafts are judged: a name in `VERIFIERS`
    drafter: str | None = None  # a name in `DRAFTERS`; None for the pair's own (`ModelPair.default_drafter`)
    # "full" events carry probabilities and the most probable tokens, "probs" only probabilities, "none" neither
    detail: Detail = "full"
    chat: bool = False  # whether to wrap a text in the tokenizer's chat template; refused where there is none
    # a window ends after a token that its drafter gave less than this; None for no such limit
    draft_confidence: float | None = None
    # "sampled" draws draft tokens from the draft model's distribution; "argmax" takes its most probable token, a point mass,
    # which is accepted with the target's probability of it. Both are lossless. Where nothing is drawn, at temperature 0 and for
    # copies, they are the same
    draft_sampling: DraftSampling = "sampled"
    # a user-supplied draft; needs a draft model, a window of a fixed size and a temperature
    given_draft: GivenDraft | None = None


def check_window(num_draft_tokens: int | str) -> int | None:
    """The window size; None for "auto"."""
    if num_draft_tokens == "auto":
        return None
    whole = isinstance(num_draft_tokens, int) and not isinstance(num_draft_tokens, bool)
    if not whole or not 0 <= int(num_draft_tokens) <= MAX_DRAFT_TOKENS:
        raise ValueError(f"num_draft_tokens must be 'auto' or from 0 to {MAX_DRAFT_TOKENS}, got {num_draft_tokens!r:.80}")
    return int(num_draft_tokens)


def check_confidence(draft_confidence: float | None) -> float | None:
    """The confidence below which a window ends, checked."""
    if draft_confidence is None:
        return None
    number = isinstance(draft_confidence, int | float) and not isinstance(draft_confidence, bool)
    if not number or not 0 <= draft_confidence <= 1:
        raise ValueError(f"draft_confidence must be None or from 0 to 1, got {draft_confidence!r:.80}")
    return float(draft_confidence)


def check_given(given: GivenDraft, num_draft_tokens: int | str, greedy: bool) -> None:
    """Check a user-supplied draft. Raises `ValueError`, naming the field and what was given."""
    if not isinstance(given, GivenDraft):
        raise ValueError(f"given_draft must be None or a GivenDraft, got {given!r:.80}")
    if not isinstance(given.draft, str | Sequence):
        raise ValueError(f"given_draft.draft must be text or token ids, got {given.draft!r:.80}")
    if num_draft_tokens in (0, "auto"):
        raise ValueError(f"given_draft needs num_draft_tokens from 1 to {MAX_DRAFT_TOKENS}, got {num_draft_tokens!r}")
    prob = given.prob
    if not isinstance(prob, int | float) or isinstance(prob, bool) or not 0 <= prob <= 1:
        raise ValueError(f"given_draft.prob must be from 0 to 1, got {prob!r:.80}")
    if len(given.draft) > MAX_GIVEN:
        raise ValueError(f"given_draft may have {MAX_GIVEN} characters or tokens, got {len(given.draft)}")
    if greedy:
        raise ValueError(
            "given_draft needs a temperature above 0 and a strategy that samples: its probability has no other use"
        )


def as_requests(prompt: Any, params: Any, options: dict[str, Any]) -> tuple[list[Request], bool]:
    """The requests of a call of `generate`, and whether it was for a single one. Raises `ValueError`, naming the argument and
    what was given."""
    prompts, single = _as_prompts(prompt)
    return [
        Request(one, of_it, **options) for one, of_it in zip(prompts, _as_params(params, len(prompts)), strict=True)
    ], single


def _as_prompts(prompt: Any) -> tuple[list[Prompt], bool]:
    if isinstance(prompt, str):
        return [prompt], True
    if not isinstance(prompt, Sequence):
        raise ValueError(f"prompt must be text, token ids, or a list of either, got {type(prompt).__name__}")
    if not prompt:
        raise ValueError("prompt is an empty list")
    if all(isinstance(item, int) for item in prompt):
        return [list(prompt)], True
    if not all(isinstance(item, str | Sequence) for item in prompt):
        raise ValueError("prompt must be text, token ids, or a list of either; this list mixes them")
    return list(prompt), False


def _as_params(params: Any, count: int) -> list[SamplingParams]:
    if params is None:
        return [SamplingParams()] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, Sequence) or not all(isinstance(one, SamplingParams) for one in params):
        raise ValueError(f"params must be SamplingParams or a list of them, got {type(params).__name__}")
    if len(params) != count:
        raise ValueError(f"params has {len(params)} entries for {count} prompts")
    return list(params)
