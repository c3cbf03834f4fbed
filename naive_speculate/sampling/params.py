"""Parameters of one request, with vLLM's names, meanings, defaults and ranges, checked on construction."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import torch

from naive_speculate.sampling.guided import GuidedDecodingParams
from naive_speculate.sampling.words import WordList, word_list

LogitsProcessor = (
    Callable[[list[int], torch.Tensor], torch.Tensor] | Callable[[list[int], list[int], torch.Tensor], torch.Tensor]
)
"""`f(output_token_ids, logits)` or `f(prompt_token_ids, output_token_ids, logits)`; logits of shape `[vocab_size]`."""

MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 512
_LISTS = ("stop", "stop_token_ids", "bad_words", "logits_processors")


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen and when generation ends.

    They are applied to the logits in this order: filter_words, allowed_token_ids, bad_words, min_tokens, logit_bias,
    logits_processors and guided_decoding, repetition, frequency and presence penalty, temperature, min_p, top_k, top_p.

    What vLLM takes is taken: None for no list, NumPy's scalars, and True for one logprob are brought into the usual form.

    Attributes:
        n: Number of output sequences to return; at least 1.
        best_of: Number of sequences to generate, of which the n most probable are returned; at least n, by default n.
        presence_penalty: Subtracted from the logits of tokens that were generated before; -2 to 2.
        frequency_penalty: Subtracted once for every time that a token was generated before; -2 to 2.
        repetition_penalty: Divides positive and multiplies negative logits of tokens in prompt or output; over 0.
        temperature: Divides the logits; 0 chooses the most probable token.
        top_p: Keep the smallest set of most probable tokens whose probability reaches this; over 0, to 1.
        top_k: Keep this many most probable tokens; -1 or 0 for all.
        min_p: Keep tokens at least this fraction as probable as the most probable one; 0 to 1.
        seed: Makes the run repeatable; None or -1 draws a seed, which the run reports.
        stop: Strings that end generation; they are not part of the text.
        stop_token_ids: Tokens that end generation; they are part of the output.
        bad_words: Words that must not be generated: where the next token could complete one, that token is forbidden.
        include_stop_str_in_output: Keep the stop string at the end of the text.
        ignore_eos: Go on after an end-of-sequence token.
        max_tokens: Number of tokens after which generation ends; at least 1, or None for as many as the model has room for.
        min_tokens: Number of tokens after which end-of-sequence, stop token or stop string may end generation; a stop string
            counts where a later token completes it.
        logprobs: Report this many most probable tokens a position (and the chosen one), of the raw distribution; -1 for all.
        prompt_logprobs: The same for the tokens of the prompt.
        detokenize: Turn tokens into text.
        skip_special_tokens: Leave special tokens out of the text.
        spaces_between_special_tokens: Where they are left in, put a space between two that follow each other.
        logits_processors: Functions that change the logits (see `LogitsProcessor`).
        truncate_prompt_tokens: Use only the last so many tokens of the prompt.
        guided_decoding: Keep the output within a JSON schema, a regular expression, a choice or a grammar.
        logit_bias: Added to the logits of these token ids; values are clamped to -100 … 100.
        allowed_token_ids: Generate only these.
        filter_words: Never generate the words of a list, in whatever tokens and spelling: "classroom" is the one that ships.

    Raises:
        ValueError: Names the field and the value that is out of its range or contradicts another.
    """

    n: int = 1
    best_of: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = ()
    stop_token_ids: Sequence[int] | None = ()
    bad_words: Sequence[str] | None = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logits_processors: Sequence[LogitsProcessor] | None = field(default=())
    truncate_prompt_tokens: int | None = None
    guided_decoding: GuidedDecodingParams | Mapping[str, Any] | None = None
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    filter_words: str | WordList | None = None

    def __post_init__(self) -> None:
        for name, value in self._in_usual_form().items():
            object.__setattr__(self, name, value)
        self._check_numbers()
        self._check_lists()
        self._check_together()

    def _in_usual_form(self) -> dict[str, Any]:
        """The fields as everything else reads them, whichever of vLLM's ways they were given in."""
        given = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        if isinstance(given["stop"], str):
            given["stop"] = [given["stop"]]
        for name in _LISTS:
            given[name] = _as_tuple(name, () if given[name] is None else given[name])
        if given["allowed_token_ids"] is not None:
            given["allowed_token_ids"] = _as_tuple("allowed_token_ids", given["allowed_token_ids"])
        if isinstance(given["logit_bias"], Mapping):
            given["logit_bias"] = {_token(token): _plain(bias) for token, bias in given["logit_bias"].items()}
        if isinstance(given["guided_decoding"], Mapping):
            given["guided_decoding"] = GuidedDecodingParams.from_mapping(given["guided_decoding"])
        if given["seed"] == -1:
            given["seed"] = None
        for name in ("logprobs", "prompt_logprobs"):
            if given[name] is True:
                given[name] = 1
        return given

    @property
    def num_sequences(self) -> int:
        """How many sequences are generated: best_of, or n."""
        return self.best_of or self.n

    @property
    def greedy(self) -> bool:
        """Whether temperature 0 asks for the most probable token every time."""
        return self.temperature == 0

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values; processors as their number, a word list as its name."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        out["logits_processors"] = len(self.logits_processors or ())
        if isinstance(self.guided_decoding, GuidedDecodingParams):
            out["guided_decoding"] = {k: v for k, v in asdict(self.guided_decoding).items() if v is not None}
        if isinstance(self.filter_words, WordList):
            out["filter_words"] = self.filter_words.name
        if self.logit_bias is not None:
            out["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        return {
            name: list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
            for name, value in out.items()
        }

    def _check_numbers(self) -> None:
        _check_int("n", self.n, 1)
        if self.best_of is not None:
            _check_int("best_of", self.best_of, 1)
            if self.best_of < self.n:
                raise ValueError(f"best_of must be at least n, got best_of={self.best_of} and n={self.n}")
        _check_float("presence_penalty", self.presence_penalty, -2, 2)
        _check_float("frequency_penalty", self.frequency_penalty, -2, 2)
        _check_float("repetition_penalty", self.repetition_penalty, 0, math.inf, above=True)
        _check_float("temperature", self.temperature, 0, math.inf)
        _check_float("top_p", self.top_p, 0, 1, above=True)
        _check_float("min_p", self.min_p, 0, 1)
        _check_int("top_k", self.top_k, -1, hint="-1 or 0 (all) or at least 1")
        if self.seed is not None:
            _check_int("seed", self.seed, 0, 2**63 - 1)
        if self.max_tokens is not None:
            _check_int("max_tokens", self.max_tokens, 1)
        _check_int("min_tokens", self.min_tokens, 0)
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                _check_int(name, getattr(self, name), -1, hint="-1 (all) or at least 0")
        if self.truncate_prompt_tokens is not None:
            _check_int("truncate_prompt_tokens", self.truncate_prompt_tokens, 1)
        for f in fields(self):
            if isinstance(f.default, bool) and not isinstance(getattr(self, f.name), bool):
                raise ValueError(f"{f.name} must be True or False, got {getattr(self, f.name)!r:.80}")

    def _check_lists(self) -> None:
        if len(self.stop or ()) > MAX_STOP_STRINGS:
            raise ValueError(f"stop may hold at most {MAX_STOP_STRINGS} strings, got {len(self.stop or ())}")
        for name in ("stop", "bad_words"):
            for text in getattr(self, name):
                if not isinstance(text, str) or not text:
                    raise ValueError(f"{name} must hold non-empty strings, got {text!r}")
                check_unicode(name, text)
                if len(text) > MAX_STOP_LENGTH:
                    raise ValueError(f"{name} strings may be {MAX_STOP_LENGTH} characters long, got one of {len(text)}")
        for token in self.stop_token_ids or ():
            _check_int("stop_token_ids", token, 0)
        if self.allowed_token_ids is not None:
            if not self.allowed_token_ids:
                raise ValueError("allowed_token_ids is empty, so that no token could be generated")
            for token in self.allowed_token_ids:
                _check_int("allowed_token_ids", token, 0)
        if self.logit_bias is not None:
            if not isinstance(self.logit_bias, Mapping):
                raise ValueError(f"logit_bias must map token ids to numbers, got {self.logit_bias!r}")
            for token, bias in self.logit_bias.items():
                _check_int("logit_bias", token, 0)
                _check_float("logit_bias", bias, -math.inf, math.inf)
        if self.filter_words is not None:
            word_list(self.filter_words)
        for processor in self.logits_processors or ():
            if not callable(processor):
                raise ValueError(f"logits_processors must hold functions, got {processor!r}")
        if self.guided_decoding is not None and not isinstance(self.guided_decoding, GuidedDecodingParams):
            raise ValueError(f"guided_decoding must be GuidedDecodingParams, got {self.guided_decoding!r}")

    def _check_together(self) -> None:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens must not exceed max_tokens, got min_tokens={self.min_tokens} and max_tokens={self.max_tokens}"
            )
        if self.stop and not self.detokenize:
            raise ValueError(f"stop={list(self.stop)!r} needs the text, but detokenize is False")


def check_unicode(name: str, text: str) -> None:
    """Refuse text that no encoding can hold.

    Raises:
        ValueError: If it has half of a surrogate pair.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is broken text: character {error.start} is half of a surrogate pair") from None


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def _as_tuple(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must be a list, got {values!r:.80}")
    return tuple(map(_plain, values))


def _token(token: Any) -> Any:
    """A key of logit_bias: JSON has strings there."""
    return int(token) if isinstance(token, str) and token.isdecimal() else _plain(token)


def _check_int(name: str, value: Any, lowest: int, highest: int | None = None, hint: str | None = None) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < lowest or (highest is not None and value > highest):
        expected = hint or (f"at least {lowest}" if highest is None else f"between {lowest} and {highest}")
        raise ValueError(f"{name} must be a whole number, {expected}, got {value!r:.80}")


def _check_float(name: str, value: Any, lowest: float, highest: float, *, above: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if not number or value < lowest or value > highest or (above and value == lowest):
        if math.isinf(lowest):
            expected = "finite"
        elif math.isinf(highest):
            expected = f"{'above' if above else 'at least'} {lowest:g}"
        else:
            expected = f"{'above' if above else 'from'} {lowest:g} {'and at most' if above else 'to'} {highest:g}"
        raise ValueError(f"{name} must be a number, {expected}, got {value!r:.80}")
