"""Guided decoding: which tokens keep the output within a grammar. The grammar engine is
llguidance; what it would not enforce is refused by name."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
import torch
from pydantic import Field, model_validator

from naive_speculate.guides.expressions import literal, rewritten
from naive_speculate.guides.schemas import enforceable
from naive_speculate.sampling.checked import checked
from naive_speculate.text import num_shared, token_bytes

if TYPE_CHECKING:
    import llguidance

LIMITS = {
    "step_max_items": 5_000,
    "initial_lexer_fuel": 200_000,
    "max_lexer_states": 30_000,
    "verbose_errors": False,
}
"""llguidance's bounds on its own work: some 20 ms of one core for a mask, and 0.3 s to begin, or
longer with a guide of over 20,000 characters."""

MAX_MASKS = 64  # that a sequence keeps: the tokens of a window, a byte for each token of the model

_KINDS = ("json", "regex", "choice", "grammar", "json_object")
_Schema = Annotated[
    str | Mapping[str, Any], Field(description="a JSON schema, as text or a mapping")
]
_Text = Annotated[str, Field(min_length=1, description="text that is not empty")]
_Choice = Annotated[
    Sequence[Annotated[str, Field(min_length=1)]],
    Field(min_length=1, description="a list of texts that are not empty"),
]


class GuideTooCostly(ValueError):
    """A grammar has used up its time or memory; the message is for its author."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(
            f"guided_decoding {name} takes too much time or memory to follow, got {text!r:.80}: "
            "give one with fewer repetitions inside repetitions"
        )


@checked("guided_decoding ")
class GuidedDecodingParams:
    """What the output must match; exactly one of the first five fields is given.

    Attributes:
        json: A JSON schema, as a string or a mapping. Properties that it does not list are not
            written unless it has `additionalProperties` or `patternProperties`. Keywords that
            cannot be enforced are refused; unknown ones mean nothing, as the standard says.
        regex: A regular expression of Python, for the whole output.
        choice: The output is one of these strings.
        grammar: A grammar in EBNF (GBNF) whose first rule is `root`.
        json_object: Any JSON object.
        disable_any_whitespace: With `json`: white space only where it is usual, one space after
            a comma or a colon. Otherwise any amount is allowed between the parts, and some
            models then write nothing else.

    Raises:
        ValueError: If not exactly one is given, it does not parse, holds what
            cannot be enforced, or llguidance is not installed.
    """

    json: _Schema | None = None
    regex: _Text | None = None
    choice: _Choice | None = None
    grammar: _Text | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool | None = None

    @model_validator(mode="after")
    def _check_together(self) -> "GuidedDecodingParams":
        kinds = [kind for kind in _KINDS if getattr(self, kind) not in (None, False)]
        if len(kinds) != 1:
            names = ", ".join(sorted(kinds)) or "none"
            raise ValueError(
                "guided_decoding needs exactly one of json, regex, choice, grammar, json_object,"
                f" got {names}"
            )
        if self.disable_any_whitespace and kinds != ["json"]:
            raise ValueError(
                "guided_decoding disable_any_whitespace must be True or False and go with json,"
                f" got {kinds[0]} and True"
            )
        name, text = self.source
        grammar_of(name, text, not self.disable_any_whitespace)
        return self

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "GuidedDecodingParams":
        """Make one from a mapping of its fields. Raises `ValueError` if a key is not a field."""
        unknown = [key for key in mapping if key not in {f.name for f in fields(cls)}]
        if unknown:
            raise ValueError(
                f"guided_decoding has no {unknown[0]!r}; it takes json, regex, choice, grammar,"
                " json_object"
            )
        return cls(**mapping)

    @property
    def source(self) -> tuple[str, str]:
        """The kind of grammar and its text."""
        if self.json is not None:
            return "json", self.json if isinstance(self.json, str) else _as_text(self.json)
        if self.regex is not None:
            return "regex", self.regex
        if self.choice is not None:
            return "choice", json.dumps(list(self.choice), ensure_ascii=False)
        if self.grammar is not None:
            return "grammar", self.grammar
        return "json_object", ""


def _as_text(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema)
    except RecursionError:
        raise ValueError("guided_decoding json is nested too deep") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"guided_decoding json must be JSON: {error}") from None


def _llguidance() -> Any:
    """The optional package."""
    try:
        import llguidance
    except ImportError as error:
        raise ValueError(
            f"guided_decoding needs llguidance: pip install '.[guided]' in the repository ({error})"
        ) from None
    return llguidance


@lru_cache(maxsize=16)
def grammar_of(name: str, text: str, any_whitespace: bool = True) -> str:
    """The grammar for llguidance of a guide, given as `GuidedDecodingParams.source`.

    Raises:
        ValueError: If it does not parse, holds what cannot be enforced, or llguidance is not
            installed.
    """
    matcher = _llguidance().LLMatcher
    try:
        if name in ("json", "json_object"):
            schema = {"type": "object"} if name == "json_object" else enforceable(_loaded(text))
            if isinstance(schema, bool):
                schema = {} if schema else {"enum": []}
            start = f"%json {json.dumps(schema | {'x-guidance': _json_options(any_whitespace)})}"
        elif name == "grammar":
            from naive_speculate.guides import gbnf

            start = gbnf.read(text)
        else:
            ways = json.loads(text) if name == "choice" else ()
            start = f"/{'|'.join(map(literal, ways)) if ways else rewritten(text)}/"
    except ValueError as error:
        raise ValueError(f"guided_decoding {name} {error}") from None
    # Without forcing: every token that continues a text is allowed, not only the tokenizer's choice
    grammar = matcher.grammar_from_lark(f'%llguidance {{"no_forcing": true}}\nstart: {start}')
    if wrong := matcher.validate_grammar(grammar, limits=_limits(grammar)):
        raise ValueError(f"guided_decoding {name} is refused, got {text!r:.80}: {_said(wrong)}")
    return str(grammar)


def _limits(grammar: str) -> "llguidance.LLParserLimits":
    fuel = max(LIMITS["initial_lexer_fuel"], 10 * len(grammar))
    return _llguidance().LLParserLimits(**LIMITS | {"initial_lexer_fuel": fuel})


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _loaded(text: str) -> Any:
    """A JSON schema."""
    try:
        return json.loads(text, parse_float=_number)
    except RecursionError:
        raise ValueError("is nested too deep") from None
    except ValueError as error:
        raise ValueError(f"does not parse, got {text!r:.80}: {error}") from None


def _json_options(any_whitespace: bool) -> dict[str, Any]:
    r"""llguidance's options for JSON. A name in `\u` codes would escape what the schema says of
    that name, so codes are not allowed in free text."""
    return {
        "item_separator": "," if any_whitespace else ", ",
        "key_separator": ":" if any_whitespace else ": ",
        "whitespace_flexible": any_whitespace,
        "coerce_one_of": False,
        "lenient": False,
        "json_allowed_escapes": 'nrbtf\\"',
        "json_allow_general_unicode_escapes": False,
    }


def _said(error: str) -> str:
    """llguidance's message, without the place in the grammar that was made for it."""
    first = error.replace("<non-verbose/>", "").strip().partition("\n")[0]
    first = re.sub(r"^at \d+\(\d+\): (failed to compile JSON schema: )?", "", first)
    return first.replace("f64", "number")[:300]


class Vocabulary(Protocol):
    """The tokens of a model: their bytes, empty for special ones, and those that end a text."""

    decoded_vocab: Sequence[bytes]
    stop_token_ids: Sequence[int]


class _Tokens:
    """A vocabulary in llguidance's form, in which special tokens have names of their own."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], stop_token_ids: Sequence[int]) -> None:
        special = {index for index, token in enumerate(tokens) if not token} | {*stop_token_ids}
        self.eos_token_id = stop_token_ids[0]
        self.special_token_ids = sorted(special)
        self.tokens = [
            f"<{index}>".encode() if index in special else bytes(token)
            for index, token in enumerate(tokens)
        ]

    def __call__(self, text: object) -> list[int]:
        """Nothing here needs the tokens of a text; llguidance tries whether it may ask."""
        return []


class GrammarCompiler:
    """Prepares grammars for one tokenizer, of transformers or a `Vocabulary`. `stop_token_ids`
    may end the output once the grammar is complete; a `ValueError` if there is none, or if
    llguidance is not installed."""

    def __init__(
        self, tokenizer: Any | Vocabulary, vocab_size: int, stop_token_ids: Sequence[int] = ()
    ) -> None:
        llguidance = _llguidance()
        if hasattr(tokenizer, "decoded_vocab"):
            tokens, stops = tokenizer.decoded_vocab, tokenizer.stop_token_ids
        else:
            words, stops = token_bytes(tokenizer), stop_token_ids
            # of words without a mark for the space between them, the words alone
            space = b" " if all(each.startswith(b" ") for each in words.values()) else b""
            tokens = [words.get(token, b"").removeprefix(space) for token in range(vocab_size)]
        self.stops = [token for token in stops if token < vocab_size]
        if not self.stops:
            raise ValueError("guided_decoding needs a model with an end-of-sequence token")
        self.vocab_size = vocab_size
        self._tokenizer = llguidance.LLTokenizer(
            _Tokens(tokens[:vocab_size], self.stops), eos_token=self.stops
        )

    @staticmethod
    def checked(value: Any) -> GuidedDecodingParams:
        """See `MaskMaker`."""
        if isinstance(value, Mapping):
            return GuidedDecodingParams.from_mapping(value)
        if not isinstance(value, GuidedDecodingParams):
            expected = "GuidedDecodingParams or a mapping of its fields"
            raise ValueError(f"guided_decoding must be {expected}, got {value!r:.80}")
        return value

    @staticmethod
    def plain(value: GuidedDecodingParams) -> dict[str, Any]:
        """See `MaskMaker`."""
        return {name: each for name, each in asdict(value).items() if each is not None}

    def mask(self, value: GuidedDecodingParams, prompt_token_ids: Sequence[int]) -> "GrammarMask":
        """See `MaskMaker`; the prompt is not part of the guided text."""
        return self.compile(value)

    def compile(self, params: GuidedDecodingParams) -> "GrammarMask":
        """A fresh matcher for the grammar. Raises `GuideTooCostly` if it parses, but takes too
        much to follow with this tokenizer."""
        grammar = grammar_of(*params.source, not params.disable_any_whitespace)
        return GrammarMask(_Walk(self, grammar, params.source))

    def matcher(self, grammar: str) -> "llguidance.LLMatcher":
        """llguidance's own matcher, at the grammar's beginning."""
        return _llguidance().LLMatcher(
            self._tokenizer, grammar, log_level=0, limits=_limits(grammar)
        )


class _Walk:
    """One output's way through a grammar, token by token, and back."""

    def __init__(self, compiler: GrammarCompiler, grammar: str, source: tuple[str, str]) -> None:
        self._compiler, self._grammar, self._source = compiler, grammar, source
        self._matcher = compiler.matcher(grammar)
        self._taken: list[int] = []
        self._ended = False
        self._checked(None)

    def is_terminated(self) -> bool:
        """Whether a token that ends the text was accepted."""
        return self._ended

    def accept_token(self, token: int) -> bool:
        """Take a token; False if the grammar does not allow it."""
        if token in self._compiler.stops:
            self._ended = self._checked(self._matcher.is_accepting())
            return self._ended
        if self._matcher.is_stopped() or not 0 <= token < self._compiler.vocab_size:
            return bool(self._checked(False))
        taken = self._checked(self._matcher.try_consume_tokens([token])) == 1
        self._taken += [token] * taken
        return taken

    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens."""
        num_tokens -= self._ended  # llguidance has not read the end
        self._ended = False
        if num_tokens:
            del self._taken[-num_tokens:]
            self._matcher.rollback(num_tokens)
        self._checked(None)

    def allowed(self) -> torch.Tensor:
        """Which tokens may follow, shape `[vocab_size]`, bool."""
        words = self._matcher.compute_bitmask()
        if self._matcher.is_error() and "NoExtensionBias" in self._matcher.get_error():
            # no token goes on from here; llguidance would not go back either
            self._matcher = self._compiler.matcher(self._grammar)
            self._matcher.try_consume_tokens(self._taken)
            words = bytes(len(words))
        bits = np.unpackbits(np.frombuffer(self._checked(words), np.uint8), bitorder="little")
        return torch.from_numpy(bits[: self._compiler.vocab_size].view(np.bool_))

    def forced(self) -> bytes:
        """What must follow, whatever else does."""
        return bytes(self._checked(self._matcher.compute_ff_bytes()))

    def _checked(self, result: Any) -> Any:
        """The result of a call; llguidance stops at its limits."""
        if self._matcher.is_error():
            raise GuideTooCostly(*self._source)
        return result


class GrammarMask:
    """Follows one output through a grammar and forbids the tokens that would leave it.

    It can be asked about any history: it rolls back to what the history shares with the last one
    and goes on from there.
    """

    def __init__(self, matcher: _Walk) -> None:
        self._matcher = matcher
        self._consumed: list[int] = []
        self._path: list[int] = []  # the last history, and by length the masks along it
        self._masks: dict[int, torch.Tensor] = {}

    def apply(self, scores: torch.Tensor, history: list[int]) -> None:
        """Set the scores of forbidden tokens to -inf, in place: scores `[vocab_size]`, after the
        generated tokens of `history`. A history that the grammar refuses has probability 0
        already; then nothing is forbidden. Raises `GuideTooCostly` if the mask takes more than
        `LIMITS` allow."""
        forbidden = self._known(history)
        if forbidden is None and self._follow(history):
            forbidden = ~self._matcher.allowed()
            self._masks[len(history)] = forbidden
            if len(self._masks) > MAX_MASKS:
                del self._masks[next(iter(self._masks))]
        if forbidden is not None:
            scores.masked_fill_(forbidden.to(scores.device), -torch.inf)

    def _known(self, history: list[int]) -> torch.Tensor | None:
        """The mask after a history that was asked about before: by a draft, then by the target."""
        shared = num_shared(self._path, history)
        if shared < len(history):
            self._masks = {size: mask for size, mask in self._masks.items() if size <= shared}
            self._path = list(history)
        return self._masks.get(len(history))

    def forced_text(self, history: list[int]) -> str:
        """The text that must follow a history, whatever else does; "" where nothing must. Raises
        as `apply`."""
        if not self._follow(history):
            return ""
        forced = self._matcher.forced()
        try:
            return forced.decode()
        except UnicodeDecodeError as error:  # it begins or ends inside a character
            return forced[: error.start].decode()

    def _follow(self, history: list[int]) -> bool:
        """Move to a history; False where the grammar refuses it or has ended."""
        shared = num_shared(self._consumed, history)
        if len(self._consumed) > shared:
            self._matcher.rollback(len(self._consumed) - shared)
            del self._consumed[shared:]
        for token in history[shared:]:
            if self._matcher.is_terminated() or not self._matcher.accept_token(token):
                return False
            self._consumed.append(token)
        return not self._matcher.is_terminated()
