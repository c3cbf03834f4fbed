"""What a caller may ask for: one object per run, and the forms that `generate` takes."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field, SkipValidation, field_validator, model_validator

from naive_speculate.sampling.checked import checked
from naive_speculate.sampling.options import documented, option
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.sequence import Detail, DraftSampling
from naive_speculate.speculate.sequence import GivenDraft as GivenDraft
from naive_speculate.speculate.sequence import Prompt as Prompt
from naive_speculate.speculate.tree import MAX_NODES, parse_tree
from naive_speculate.speculate.verify import VERIFIERS, Verifier, VerifyStrategy, verifier_for
from naive_speculate.text import check_unicode

MAX_DRAFT_TOKENS = 64
_PROMPTS = "text, token ids, messages, or a list of those"
_WINDOW = f"'auto' or from 0 to {MAX_DRAFT_TOKENS}"
_Window = (
    Annotated[int, Field(ge=0, le=MAX_DRAFT_TOKENS, description=_WINDOW)]
    | Annotated[str, Field(pattern="^auto$")]
)


_Tools = Annotated[
    Sequence[Any], Field(description="None or a list of functions or JSON schemas of tools")
]
_Names = Annotated[Mapping[str, Any], Field(description="None or a mapping of names")]
_Confidence = Annotated[float, Field(ge=0, le=1, description="None or from 0 to 1")]


@documented
@checked()
class Request:
    """One run to make. Its prompt, and what depends on the pair, are checked on admission
    (`Admission.run`)."""

    prompt: SkipValidation[Prompt]  # text, token ids, or with `chat` messages (role and content)
    # how tokens are chosen and when generation ends; with n > 1 each sequence has its own row in
    # the events
    params: Annotated[SamplingParams, Field(description="SamplingParams")] = Field(
        default_factory=SamplingParams
    )
    num_draft_tokens: _Window = option(
        5,
        "Draft tokens per step. 0 is plain decoding, auto follows acceptance rate and costs.",
        among=("auto",),
    )
    verify_strategy: Any = option(
        VerifyStrategy.SPECULATIVE_SAMPLING,
        "How draft tokens are judged.",
        more="typical_acceptance is lossy, greedy_match is as at temperature 0.",
        among=VERIFIERS,
    )
    drafter: Any = option(
        None,
        "What proposes the draft tokens.",
        more="suffix and prompt_lookup copy from the text so far, suffix+head where it repeats.",
        none="the pair's own",
        among=DRAFTERS,
    )
    # "full" events carry probabilities and the most probable tokens, "probs" only probabilities,
    # "none" neither
    detail: Annotated[Detail, Field(description="'full', 'probs' or 'none'")] = "full"
    # whether to put text or messages into the tokenizer's chat template; refused where there is
    # none
    chat: bool = False
    # what the template gets, by vLLM's names: functions or JSON schemas of tools, variables such
    # as enable_thinking, and whether an answer begins or the last message goes on
    tools: _Tools | None = None
    chat_template_kwargs: _Names | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    draft_confidence: _Confidence | None = option(
        None,
        "End a window after a token with a lower draft probability.",
        more="For a copy it is an estimate.",
        none="no such limit",
    )
    # both are lossless; where nothing is drawn, at temperature 0 and for copies, they are the same
    draft_sampling: Annotated[DraftSampling, Field(description="'sampled' or 'argmax'")] = option(
        "sampled",
        "Drawn from the draft's distribution, or its most probable tokens. Argmax helps if the"
        " draft is less sure than the target.",
        title="Draft tokens of a model",
    )
    tree: Any = option(
        None,
        "Several candidates per position: the children of a node by depth, such as 4x2x1.",
        more=f"At most {MAX_NODES} nodes. Rows are then stepped alone. Replaces num_draft_tokens,"
        " unless that is 0.",
        none="windows",
    )
    # a user-supplied draft; needs a draft model, a window of a fixed size and a temperature
    given_draft: Annotated[GivenDraft, Field(description="None or a GivenDraft")] | None = None
    # in a batch of several rows, draft fewer tokens where so many do not pay, if the text does not
    # depend on it: at temperature 0, or without a seed. A sampled run whose windows shrank is not
    # repeated by the seed in its events
    shrink_in_batch: bool = False

    @field_validator("prompt", mode="before")
    @classmethod
    def _in_plain_form(cls, prompt: Any) -> Any:
        prompt = _plain(prompt)
        if not isinstance(prompt, str | list):
            raise ValueError(
                f"prompt must be text, token ids or messages, got {type(prompt).__name__}"
            )
        return prompt

    @model_validator(mode="after")
    def _check_together(self) -> "Request":
        if self.add_generation_prompt and self.continue_final_message:
            raise ValueError(
                "add_generation_prompt begins an answer, and continue_final_message none: set one"
            )
        if not self.chat:
            for name in ("tools", "chat_template_kwargs", "add_generation_prompt"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs chat=True")
            if self.continue_final_message:
                raise ValueError("continue_final_message needs chat=True")
        return self

    @property
    def template_options(self) -> dict[str, Any]:
        """What `apply_chat_template` gets besides the messages."""
        begins = self.add_generation_prompt
        options = {
            "tools": None if self.tools is None else list(self.tools),
            "add_generation_prompt": not self.continue_final_message if begins is None else begins,
            "continue_final_message": self.continue_final_message,
        }
        return options | dict(self.chat_template_kwargs or {})

    @model_validator(mode="after")
    def _check_drafting(self) -> "Request":
        """What needs no pair of models."""
        if self.given_draft is not None:
            self._check_given_draft(self.given_draft)
        if self.shape is not None:
            needs, sampling = f"tree={self.tree!r} needs", VerifyStrategy.SPECULATIVE_SAMPLING
            if not self.verifier.greedy and self.verifier is not VERIFIERS[sampling]:
                raise ValueError(
                    f"{needs} verify_strategy {sampling.value!r}, got {str(self.verify_strategy)!r}"
                )
            if self.draft_confidence is not None:
                raise ValueError(f"{needs} draft_confidence None, got {self.draft_confidence}")
        return self

    def _check_given_draft(self, draft: GivenDraft) -> None:
        if (size := self.num_draft_tokens) in (0, "auto"):
            raise ValueError(
                f"given_draft needs num_draft_tokens from 1 to {MAX_DRAFT_TOKENS}, got {size!r}"
            )
        if self.verifier.greedy:
            needed = "a temperature above 0 and a strategy that samples"
            raise ValueError(f"given_draft needs {needed}: its probability has no other use")
        if self.draft_sampling != "sampled":
            raise ValueError(
                f"given_draft needs draft_sampling='sampled', got {self.draft_sampling!r}"
            )
        if isinstance(draft.draft, str):
            check_unicode("given_draft", draft.draft)

    @property
    def verifier(self) -> Verifier:
        """What judges the drafts; a `ValueError` if no verifier has this name."""
        return verifier_for(self.verify_strategy, self.params.greedy)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The children of a node by depth; None where no trees are drafted. A `ValueError` if the
        tree is in another form."""
        shape = None if self.tree is None else parse_tree(self.tree)
        return None if self.num_draft_tokens == 0 else shape


def as_requests(prompt: Any, params: Any, options: dict[str, Any]) -> tuple[list[Request], bool]:
    """The requests of a call of `generate`, and whether it was for a single one. Raises
    `ValueError`, naming the argument and what was given."""
    prompts, single = _as_prompts(prompt)
    return [
        Request(one, of_it, **options)
        for one, of_it in zip(prompts, _as_params(params, len(prompts)), strict=True)
    ], single


def _as_prompts(prompt: Any) -> tuple[list[Prompt], bool]:
    prompt = _plain(prompt)
    if isinstance(prompt, str):
        return [prompt], True
    if not isinstance(prompt, list):
        raise ValueError(f"prompt must be {_PROMPTS}, got {type(prompt).__name__}")
    if not prompt:
        raise ValueError("prompt is an empty list")
    if any(all(isinstance(item, kind) for item in prompt) for kind in (int, Mapping)):
        return [prompt], True
    if not all(isinstance(item, str | list) for item in prompt):
        raise ValueError(f"prompt must be {_PROMPTS}; this list mixes them")
    return prompt, False


def _plain(prompt: Any) -> Any:
    """Arrays and tensors, and sequences of their elements, as lists of Python's numbers."""
    if isinstance(prompt, np.ndarray | np.integer | torch.Tensor):
        return prompt.tolist()
    if isinstance(prompt, Sequence) and not isinstance(prompt, str | bytes):
        return [_plain(item) for item in prompt]
    return prompt


def _as_params(params: Any, count: int) -> list[SamplingParams]:
    if params is None:
        return [SamplingParams()] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, Sequence) or not all(
        isinstance(one, SamplingParams) for one in params
    ):
        raise ValueError(
            f"params must be SamplingParams or a list of them, got {type(params).__name__}"
        )
    if len(params) != count:
        raise ValueError(f"params has {len(params)} entries for {count} prompts")
    return list(params)
