"""Guided decoding: which tokens keep the output within a grammar. The grammar engine is
xgrammar."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field, model_validator

from naive_speculate.sampling.checked import checked
from naive_speculate.text import num_shared

if TYPE_CHECKING:
    import xgrammar

MAX_GRAMMAR_LENGTH = 20_000
# repetitions in a regular expression or grammar: compile time grows with their square, two seconds
# for 1,000
MAX_REPEATS = 300
MAX_TIMES = 1000
"""The largest count of a repetition: nested counts are multiplied, and those of a JSON schema's
patterns are added. There `a{1,10000}` takes ten seconds to parse, and 140 patterns
`(ab?){1,900}` take 24. After ninety letters of `((a{1,1000}){1,1000}){1,1000}` every further one
takes three seconds."""
MAX_COUNTED_PROPERTIES = 100
"""Properties of JSON objects that limit their number of properties: 1,200 take twenty seconds to
parse."""
MAX_DEPTH = 64  # levels of a JSON schema: 600 take half a minute to compile
CACHE_BYTES = (
    64 * 2**20
)  # compiled grammars that are kept, 30 KB for a small schema; the least recently used go first

_LITERAL = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]')
_HEX = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:x|u00)([0-9a-fA-F]{2})")
_COUNTED = re.compile(r"([\w.-]+)(?:\{(\d+), (-?\d+)\})?")
_KINDS = ("json", "regex", "choice", "grammar", "json_object")
_Schema = Annotated[
    str | Mapping[str, Any], Field(description="a JSON schema, as text or a mapping")
]
_Text = Annotated[str, Field(min_length=1, description="text that is not empty")]
_Choice = Annotated[
    Sequence[Annotated[str, Field(min_length=1)]],
    Field(min_length=1, description="a list of texts that are not empty"),
]
# the methods of xgrammar's Grammar and GrammarCompiler by kind; a choice is a grammar
_PARSERS = {
    "json": "from_json_schema",
    "regex": "from_regex",
    "grammar": "from_ebnf",
    "json_object": "builtin_json_grammar",
}
_COMPILERS = {"json": "compile_json_schema", "regex": "compile_regex", "grammar": "compile_grammar"}
_COMPILERS |= {"json_object": "compile_builtin_json_grammar"}


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
        json: A JSON schema, as a string or a mapping.
        regex: A regular expression.
        choice: The output is one of these strings.
        grammar: A grammar in EBNF (GBNF) whose first rule is `root`.
        json_object: Any JSON object.
        disable_any_whitespace: With `json`: white space only where it is usual, one space after
            a comma or a colon. Otherwise any amount is allowed between the parts, and some
            models then write nothing else.

    Raises:
        ValueError: If not exactly one is given, it does not parse, or xgrammar is not installed.
    """

    json: _Schema | None = None
    regex: _Text | None = None
    choice: _Choice | None = None
    grammar: _Text | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool | None = None

    @model_validator(mode="after")
    def _check_together(self) -> "GuidedDecodingParams":
        given = [kind for kind in _KINDS if getattr(self, kind) not in (None, False)]
        if len(given) != 1:
            names = ", ".join(sorted(given)) or "none"
            raise ValueError(
                "guided_decoding needs exactly one of json, regex, choice, grammar, json_object,"
                f" got {names}"
            )
        if self.disable_any_whitespace and given != ["json"]:
            raise ValueError(
                "guided_decoding disable_any_whitespace must be True or False and go with json,"
                f" got {given[0]} and True"
            )
        name, text = self.source
        if len(text) > MAX_GRAMMAR_LENGTH:
            raise ValueError(
                f"guided_decoding {name} may be {MAX_GRAMMAR_LENGTH} characters long, got"
                f" {len(text)}"
            )
        _check(name, text, not self.disable_any_whitespace)
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
            return "json", self.json if isinstance(self.json, str) else json.dumps(self.json)
        if self.regex is not None:
            return "regex", self.regex
        if self.choice is not None:
            return "choice", "root ::= " + " | ".join(
                json.dumps(text, ensure_ascii=False) for text in self.choice
            )
        if self.grammar is not None:
            return "grammar", self.grammar
        return "json_object", ""


@lru_cache(maxsize=64)
def _check(name: str, text: str, any_whitespace: bool) -> None:
    """Refuse what is too large or does not parse. No grammar is kept: a schema of 19,000
    characters takes up to 30 MB."""
    _check_size(name, text)
    parse(name, text, any_whitespace=any_whitespace)


def _check_size(name: str, text: str) -> None:
    """Refuse what would take long to compile, since compiling cannot be stopped."""
    patterns, counted = [text] if name in ("regex", "grammar") else [], 0
    if name == "json":
        too_deep = ValueError(f"guided_decoding json may be {MAX_DEPTH} levels deep, got more")
        try:
            level, depth = [json.loads(text)], 0
        except RecursionError:
            raise too_deep from None
        except ValueError as error:
            raise ValueError(
                f"guided_decoding json does not parse, got {text!r:.80}: {error}"
            ) from None
        while level:
            depth += 1
            if depth > MAX_DEPTH:
                raise too_deep
            below: list[Any] = []
            for node in level:
                if isinstance(node, dict):
                    if node.keys() & {"minProperties", "maxProperties"} and isinstance(
                        node.get("properties"), dict
                    ):
                        counted += len(node["properties"])
                    patterns += [
                        value
                        for key, value in node.items()
                        if key == "pattern" and isinstance(value, str)
                    ]
                    patterns += (
                        node.get("patternProperties", ())
                        if isinstance(node.get("patternProperties"), dict)
                        else ()
                    )
                    below += node.values()
                elif isinstance(node, list):
                    below += node
            level = below
    if counted > MAX_COUNTED_PROPERTIES:
        raise ValueError(
            f"guided_decoding json may count {MAX_COUNTED_PROPERTIES} properties by minProperties"
            f" and maxProperties, got {counted}"
        )
    repeats = sum(len(re.findall(r"[*+?{]", pattern)) for pattern in patterns)
    if repeats > MAX_REPEATS:
        raise ValueError(
            f"guided_decoding {name} may hold {MAX_REPEATS} repetitions (* + ? {{}}), got {repeats}"
        )
    most = 0
    for pattern in (each for each in patterns if "{" in each):
        try:
            if name == "json":  # its patterns are expanded
                most += _most_times(str(parse("regex", pattern)), sum)
            else:
                most = _most_times(str(parse(name, pattern)), max)
        except ValueError:  # reported when all of the text is parsed
            continue
        except RecursionError:
            raise ValueError(f"guided_decoding {name} has rules that are nested too deep") from None
        if most > MAX_TIMES:
            raise ValueError(
                f"guided_decoding {name} may repeat something up to {MAX_TIMES} times, got {most}"
            )


def _most_times(grammar: str, together: Callable[[list[int]], int]) -> int:
    """How often a grammar may repeat something: nested counts are multiplied, and neighbouring
    ones combined with `together`; of a recursive rule, one level is counted.

    xgrammar prints one rule per line, and counts only names of rules: `name{1, 1000}`.
    """
    lines = _LITERAL.sub("", grammar).splitlines()
    bodies = {
        name: _COUNTED.findall(body)
        for name, _, body in (line.partition(" ::= ") for line in lines)
    }
    found: dict[str, int] = {}

    def times(name: str) -> int:
        if name not in found:
            found[name] = 1  # for a rule within itself
            counted = (
                max(1, int(low or 1), int(high or 1)) * times(rule)
                for rule, low, high in bodies.get(name, ())
            )
            found[name] = together([count for count in counted if count > 1] or [1])
        return found[name]

    return max(map(times, bodies), default=1)


def _xgrammar() -> Any:
    """The optional package."""
    try:
        import xgrammar
    except ImportError as error:
        raise ValueError(
            f"guided_decoding needs xgrammar: pip install '.[guided]' in the repository ({error})"
        ) from None
    return xgrammar


def parse(name: str, text: str, *, any_whitespace: bool = True) -> "xgrammar.Grammar":
    """Parse a grammar given as `GuidedDecodingParams.source`. Raises `ValueError` with the
    parser's message, or if xgrammar is not installed."""
    grammar = _xgrammar().Grammar
    try:
        return _made(grammar, _PARSERS, name, text, any_whitespace)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(
            f"guided_decoding {name} does not parse, got {text!r:.80}: {_said(error)}"
        ) from None


def _made(
    maker: Any, methods: Mapping[str, str], name: str, text: str, any_whitespace: bool
) -> Any:
    """What the maker's method for this kind makes of its text."""
    make = getattr(maker, methods.get(name, methods["grammar"]))
    if name == "json":
        return make(text, any_whitespace=any_whitespace)
    return make() if name == "json_object" else make(_two_digits(name, text))


def _two_digits(name: str, text: str) -> str:
    r"""The text with `\xHH` written so that xgrammar reads two digits: it reads as many as there
    are, but four after `\u`.

    In a class of a regular expression it prints escaped characters outside ASCII and reads the
    result again, so they are written unescaped; NUL must stay escaped.
    """

    def character(found: re.Match[str]) -> str:
        code = int(found[2], 16)
        return found[1] + (
            chr(code)
            if name == "regex" and (0 < code < 0x20 or code >= 0x7F)
            else rf"\u00{found[2]}"
        )

    return _HEX.sub(character, text)


def _said(error: Exception) -> str:
    """xgrammar's message, without the line of its source."""
    return re.sub(r"^\[[\d:]+\] \S+: ", "", " ".join(str(error).split()))[:300]


class GrammarCompiler:
    """Compiles grammars for one tokenizer, of transformers or in xgrammar's form (`info`), and
    caches them. `stop_token_ids` may end the output once the grammar is complete; a `ValueError`
    if there is none, or if xgrammar is not installed."""

    def __init__(self, tokenizer: Any, vocab_size: int, stop_token_ids: Sequence[int] = ()) -> None:
        xgrammar = _xgrammar()
        if not isinstance(tokenizer, xgrammar.TokenizerInfo):
            if not stop_token_ids:
                raise ValueError("guided_decoding needs a model with an end-of-sequence token")
            stops = list(stop_token_ids)
            tokenizer = xgrammar.TokenizerInfo.from_huggingface(
                tokenizer, vocab_size=vocab_size, stop_token_ids=stops
            )
        self.info = tokenizer
        self.vocab_size = vocab_size
        self._compiler = xgrammar.GrammarCompiler(
            tokenizer, max_threads=2, cache_limit_bytes=CACHE_BYTES
        )

    def compile(self, params: GuidedDecodingParams) -> "GrammarMask":
        r"""A fresh matcher for the grammar. Raises `ValueError` if it parses, but xgrammar
        cannot work with it.

        It is compiled from its source: xgrammar would print a parsed grammar and parse that,
        where `\xf6d`, its "öd", becomes one character.
        """
        name, text = params.source
        try:
            compiled = _made(
                self._compiler, _COMPILERS, name, text, not params.disable_any_whitespace
            )
        except RuntimeError as error:
            raise ValueError(
                f"guided_decoding {name} does not compile, got {text!r:.80}: {_said(error)}"
            ) from None
        return GrammarMask(compiled, self.vocab_size)


class GrammarMask:
    """Follows one output through a grammar and forbids the tokens that would leave it.

    It can be asked about any history: it rolls back to what the history shares with the last one
    and goes on from there.
    """

    def __init__(self, compiled: "xgrammar.CompiledGrammar", vocab_size: int) -> None:
        xgrammar = _xgrammar()
        self._matcher: Any = xgrammar.GrammarMatcher(compiled)
        self._bitmask = xgrammar.allocate_token_bitmask(1, vocab_size)
        self._consumed: list[int] = []

    def apply(self, scores: torch.Tensor, history: list[int]) -> None:
        """Set the scores of forbidden tokens to -inf, in place: scores `[vocab_size]`, after the
        generated tokens of `history`. A history that the grammar refuses has probability 0
        already; then nothing is forbidden. Raises `GuideTooCostly` if the mask takes longer than
        the decoder's `mask_seconds` allow."""
        allowed = self._allowed(history)
        if allowed is not None:
            forbidden = torch.zeros_like(scores, dtype=torch.float32)  # xgrammar takes no float64
            _xgrammar().apply_token_bitmask_inplace(forbidden, allowed.to(scores.device))
            scores.masked_fill_(forbidden == -torch.inf, -torch.inf)

    def forced_text(self, history: list[int]) -> str:
        """The text that must follow a history, whatever else does; "" where nothing must. Raises
        as `apply`."""
        if not self._follow(history):
            return ""
        try:
            return str(self._matcher.find_jump_forward_string())
        except UnicodeDecodeError as error:  # it begins or ends inside a character
            return bytes(error.object[: error.start]).decode()

    def _allowed(self, history: list[int]) -> torch.Tensor | None:
        """A bit for every token, in 32-bit words, shape `[1, ceil(vocab_size / 32)]`; None where
        nothing is forbidden."""
        if not self._follow(history):
            return None
        self._matcher.fill_next_token_bitmask(self._bitmask)
        return self._bitmask

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
