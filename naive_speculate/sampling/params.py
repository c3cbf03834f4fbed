"""Parameters of one request, with vLLM's names, meanings, defaults and ranges, checked on
construction."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field, ValidationInfo, field_validator, model_validator

from naive_speculate.sampling.checked import Real, checked
from naive_speculate.sampling.masks import MASKS
from naive_speculate.sampling.options import documented, lists_of, option
from naive_speculate.text import check_unicode

LogitsProcessor = (
    Callable[[list[int], torch.Tensor], torch.Tensor]
    | Callable[[list[int], list[int], torch.Tensor], torch.Tensor]
)
"""`f(output_token_ids, logits)` or `f(prompt_token_ids, output_token_ids, logits)`; logits of
shape `[vocab_size]`."""

MAX_SEQUENCES = 16_384  # vLLM's limit
MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 512

# What a field may be; the description ends the sentence "temperature must be …".
_Positive = Annotated[int, Field(ge=1, description="a whole number, at least 1")]
_Sequences = Annotated[
    int, Field(ge=1, le=MAX_SEQUENCES, description=f"a whole number, from 1 to {MAX_SEQUENCES}")
]
_Count = Annotated[int, Field(ge=0, description="a whole number, at least 0")]
_Most = Annotated[int, Field(ge=-1, description="a whole number, -1 (all) or at least 0")]
_TopK = Annotated[int, Field(ge=-1, description="a whole number, -1 or 0 (all) or at least 1")]
_Seed = Annotated[
    int, Field(ge=0, lt=2**63, description=f"a whole number, between 0 and {2**63 - 1}")
]
_Penalty = Annotated[Real, Field(ge=-2, le=2, description="a number, from -2 to 2")]
_Share = Annotated[Real, Field(ge=0, le=1, description="a number, from 0 to 1")]
_SomeShare = Annotated[Real, Field(gt=0, le=1, description="a number, above 0 and at most 1")]
_Factor = Annotated[Real, Field(gt=0, allow_inf_nan=False, description="a number, above 0")]
_Temperature = Annotated[Real, Field(ge=0, allow_inf_nan=False, description="a number, at least 0")]
_Text = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
_TEXTS = f"strings of 1 to {MAX_STOP_LENGTH} characters"
_Texts = Annotated[Sequence[_Text], Field(description=f"a list of {_TEXTS}")]
_Stops = Annotated[
    Sequence[_Text],
    Field(
        max_length=MAX_STOP_STRINGS, description=f"a list of at most {MAX_STOP_STRINGS} {_TEXTS}"
    ),
]
_Tokens = Annotated[Sequence[_Count], Field(description="a list of token ids")]
_SomeTokens = Annotated[
    Sequence[_Count], Field(min_length=1, description="a list of at least one token id")
]
_Bias = Annotated[
    Mapping[_Count, Annotated[Real, Field(allow_inf_nan=False)]],
    Field(description="a mapping of token ids to finite numbers"),
]
_Processors = Annotated[Sequence[Callable[..., Any]], Field(description="a list of functions")]


@documented
@checked()
class SamplingParams:
    """How tokens are chosen and when generation ends.

    They are applied to the logits in this order: filter_words, allowed_token_ids, bad_words,
    min_tokens, logit_bias, logits_processors and guided_decoding, repetition, frequency and
    presence penalty, temperature, min_p, top_k, top_p.

    Every form that vLLM accepts is accepted: None for no list, NumPy scalars, True for one logprob.

    Raises:
        ValueError: Names the field and the value that is out of its range or contradicts another.
    """

    n: _Sequences = option(1, "Number of output sequences to return.")
    best_of: _Sequences | None = option(
        None,
        "Number of sequences to generate, of which the n most probable are returned.",
        none="n",
    )
    presence_penalty: _Penalty = option(
        0.0,
        "Subtracted from the logit of each generated token.",
        title="Presence penalty",
        step=0.1,
    )
    frequency_penalty: _Penalty = option(
        0.0,
        "Subtracted from a token's logit once per time that it was generated.",
        title="Frequency penalty",
        step=0.1,
    )
    repetition_penalty: _Factor = option(
        1.0,
        "Above 1, earlier tokens become less likely.",
        more="Divides positive and multiplies negative logits of tokens in prompt or output.",
        title="Repetition penalty",
        step=0.05,
        between=(0.5, 2),
    )
    temperature: _Temperature = option(
        1.0,
        "0 takes the most probable token; higher values vary more.",
        more="Divides the logits.",
        title="Temperature",
    )
    top_p: _SomeShare = option(
        1.0,
        "Keep the most probable tokens up to this total [probability](#term-top-p).",
        title="Top-p",
        step=0.05,
    )
    top_k: _TopK = option(-1, "Keep only the k likeliest tokens; -1 keeps all.", title="Top-k")
    min_p: _Share = option(
        0.0,
        "Drop tokens below this fraction of the highest probability.",
        title="Min-p",
        step=0.01,
    )
    seed: _Seed | None = option(
        None,
        "[Same seed](#term-seed), same text.",
        more="With -1 one is drawn.",
        none="one is drawn, and reported by the events",
        title="Seed",
    )
    stop: str | _Stops | None = option(
        (), "Texts that end the generation; they are not part of the text."
    )
    stop_token_ids: _Tokens | None = option(
        (), "Tokens that end the generation; their text is left out, their ids are not."
    )
    bad_words: _Texts | None = option(
        (), "Words that must not be generated: a token that would complete one is banned."
    )
    include_stop_str_in_output: bool = option(
        False,
        "Keep the stop string, or the text of the token that ended the generation.",
    )
    ignore_eos: bool = option(
        False,
        "Continue up to max tokens, even if the model would end.",
        title="Ignore the end token",
    )
    max_tokens: _Positive | None = option(
        16,
        "Stop after this many tokens.",
        none="as many as the model has room for",
        title="Max tokens",
    )
    min_tokens: _Count = option(
        0,
        "Nothing ends the generation before this many tokens.",
        more="A stop string counts where a later token completes it.",
    )
    logprobs: _Most | None = option(
        None,
        "Report this many most probable tokens per position, and the chosen one.",
        more="From the raw distribution.",
    )
    prompt_logprobs: _Most | None = option(None, "Report the same for the tokens of the prompt.")
    detokenize: bool = option(True, "Turn tokens into text.")
    skip_special_tokens: bool = option(True, "Leave special tokens out of the text.")
    spaces_between_special_tokens: bool = option(
        True,
        "Keep the spaces that some tokenizers put between special tokens, if those are kept.",
    )
    # functions that change the logits (see `LogitsProcessor`)
    logits_processors: _Processors | None = ()
    truncate_prompt_tokens: _Positive | None = option(
        None, "Use only the last so many tokens of the prompt."
    )
    # keep the output within a JSON schema, a regular expression, a choice or a grammar:
    # `GuidedDecodingParams` or a mapping of its fields
    guided_decoding: Any = None
    logit_bias: _Bias | None = option(
        None, "Added to the logits of these token ids; values are clamped to -100 … 100."
    )
    allowed_token_ids: _SomeTokens | None = option(None, "Generate only these tokens.")
    # "classroom" or a `WordList`
    filter_words: Any = option(
        None,
        "Never generate the words of a list, in whatever tokens and spelling.",
        among=["classroom"],
    )

    @field_validator("*", mode="before")
    @classmethod
    def _in_usual_form(cls: Any, value: Any, info: ValidationInfo) -> Any:
        """A field in one form, whichever of vLLM's forms it was given in."""
        value, name = _plain(value), info.field_name
        if name in (lists := lists_of(cls)):
            items, alone = lists[name]
            if value is None:
                value = cls.__dataclass_fields__[name].default
            elif alone and isinstance(value, items):
                value = [value]
            if not isinstance(value, str | bytes | Mapping) and isinstance(value, Iterable):
                value = tuple(map(_plain, value))
                for text in value if items is str else ():
                    check_unicode(str(name), str(text))
        elif name == "logit_bias" and isinstance(value, Mapping):
            return {_token(token): _plain(bias) for token, bias in value.items()}
        elif name in MASKS and value is not None:
            return MASKS[str(name)].checked(value)
        if name == "seed" and value == -1:
            return None
        return 1 if name in ("logprobs", "prompt_logprobs") and value is True else value

    @model_validator(mode="after")
    def _check_together(self) -> "SamplingParams":
        if self.best_of is not None and self.best_of < self.n:
            raise ValueError(
                f"best_of must be at least n, got best_of={self.best_of} and n={self.n}"
            )
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens must not exceed max_tokens, got min_tokens={self.min_tokens} and"
                f" max_tokens={self.max_tokens}"
            )
        if self.stop and not self.detokenize:
            raise ValueError(f"stop={list(self.stop)!r} needs the text, but detokenize is False")
        return self

    @property
    def num_sequences(self) -> int:
        """How many sequences are generated: best_of, or n."""
        return self.best_of or self.n

    @property
    def greedy(self) -> bool:
        """Whether temperature 0 asks for the most probable token every time."""
        return self.temperature == 0

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values; processors as their count, a word list as its name."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        out["logits_processors"] = len(self.logits_processors or ())
        for name in MASKS:
            if out[name] is not None:
                out[name] = MASKS[name].plain(out[name])
        if self.logit_bias is not None:
            out["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        return {
            name: (
                list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
            )
            for name, value in out.items()
        }


def _plain(value: Any) -> Any:
    """NumPy scalars as Python values."""
    return value.item() if isinstance(value, np.generic) else value


def _token(token: Any) -> Any:
    """A key of logit_bias, which is a string in JSON."""
    return int(token) if isinstance(token, str) and token.isdecimal() else _plain(token)
