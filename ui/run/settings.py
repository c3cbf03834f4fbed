"""A visitor's settings: the controls' values as one record, and as the query string of a link."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from itertools import accumulate
from operator import mul
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode

from pydantic import BeforeValidator, FiniteFloat, ValidationError
from pydantic.dataclasses import dataclass

from naive_speculate.events.trace import Trace
from naive_speculate.sampling.options import Option, options_of
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.serving import Request
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.sequence import Detail
from naive_speculate.speculate.tree import MAX_NODES, parse_tree
from naive_speculate.speculate.verify import VERIFIERS
from ui.checks import first_problem

MAX_PROMPT_CHARACTERS = 100_000
MAX_GUIDE_LENGTH = 20_000  # characters: a schema of so many takes 0.2 s to read
TREE = "3x2x1"  # an example; it has 15 nodes
TITLES = {"choice": "One of these texts", "regex": "A regular expression", "json": "A JSON schema"}
"""The page's kinds of guides, by the library's names."""

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
_NoneIfEmpty = BeforeValidator(lambda value: None if value == "" else value)
Seed = Annotated[int | None, _NoneIfEmpty]
T = TypeVar("T")


OF_PARAMS = {name: each for name, each in options_of(SamplingParams).items() if each.title}
OF_REQUEST = {name: each for name, each in options_of(Request).items() if each.title}
OPTIONS = OF_PARAMS | OF_REQUEST
"""The library's options that have a control on the page: numbers, flags and names."""


def type_of(option: Option) -> Any:
    """The type of an option's setting, which a control or a link gives."""
    kind: Any = FiniteFloat if option.form is float else option.form
    return Annotated[kind | None, _NoneIfEmpty] if option.default is None else kind


def with_options(cls: type[T], options: Iterable[Option]) -> type[T]:
    """Add a field for each option that the class has no field of its own for."""
    for option in options:
        if option.name not in cls.__annotations__:
            cls.__annotations__[option.name] = type_of(option)
            setattr(cls, option.name, option.default)
    return cls


@dataclass(frozen=True)
@partial(with_options, options=OPTIONS.values())
class Settings:
    """A run's settings, named as in the library. Those that need no code of the page are added
    from the library's options.

    `num_draft_tokens` is ignored if `auto` is on. `stop` has one string per line. Without `seed`
    a random one is drawn. `guided` is the kind of guide, empty for none; `guided_text` is the
    guide, with one text per line as in `stop`. An empty `pair` or `drafter` is the default. An
    empty `tree` is none.
    """

    prompt: Text = ""
    verify_strategy: Text = "speculative_sampling"
    drafter: Text = ""
    tree: Text = ""
    num_draft_tokens: int = 5
    auto: bool = False
    temperature: FiniteFloat = 0.7
    max_tokens: int = 120
    seed: Seed = 0
    stop: Text = ""
    ignore_eos: bool = False
    guided: Text = ""
    guided_text: Text = ""
    chat: bool = True
    pair: Text = ""

    @property
    def window(self) -> int | Literal["auto"]:
        """Draft tokens per step, as in the library."""
        return "auto" if self.auto else self.num_draft_tokens

    def params(self) -> SamplingParams:
        """The library's parameters; a ValueError names the field that is out of range."""
        same = {name: getattr(self, name) for name in OF_PARAMS}
        stop = [
            line.replace("\\n", "\n") for line in self.stop.split("\n") if line
        ]  # as in the control's help
        return SamplingParams(
            **same, stop=stop, guided_decoding=guide(self.guided, self.guided_text)
        )

    def request(self, detail: Detail = "full", *, shrink_in_batch: bool = False) -> Request:
        """The request for the engine; details cost time, so omit them if only tokens and times
        are needed. A ValueError names the invalid setting. See `Request` for both arguments."""
        if not self.prompt.strip():
            raise ValueError("prompt is empty: write the start of a text")
        if self.tree.strip() and (nodes := _nodes(parse_tree(self.tree.strip()))) > MAX_NODES:
            raise ValueError(
                f"tree must be at most {MAX_NODES} nodes, such as {TREE}, got"
                f" {self.tree.strip():.40} ({nodes})"
            )
        return Request(
            self.prompt,
            self.params(),
            num_draft_tokens=self.window,
            verify_strategy=self.verify_strategy,
            drafter=self.drafter or None,
            tree=self.tree.strip() or None,
            detail=detail,
            chat=self.chat,
            shrink_in_batch=shrink_in_batch,
            **{name: getattr(self, name) for name in OF_REQUEST},
        )

    def query(self, usual: "Settings") -> str:
        """The settings as a query string for `from_query`; values equal to `usual` are omitted."""
        values = asdict(usual)
        changed = {name: value for name, value in asdict(self).items() if value != values[name]}
        return urlencode({name: "" if value is None else value for name, value in changed.items()})


NOTHING = Settings(
    prompt="", seed=None
)  # settings relative to which a link contains the prompt and the seed


def _nodes(shape: Sequence[int]) -> int:
    """The nodes of a whole tree."""
    return sum(accumulate(shape, mul))


def from_query(query: Mapping[str, str]) -> dict[str, Any]:
    """The settings in a link, by field; a ValueError names the invalid value."""
    linked = {
        field.name: query[field.name][:MAX_PROMPT_CHARACTERS]
        for field in fields(Settings)
        if field.name in query
    }
    settings = checked(linked)
    choices: dict[str, Collection[str]] = {
        "verify_strategy": VERIFIERS,
        "drafter": ["", *DRAFTERS],
        "guided": ["", *TITLES],
    }
    choices |= {each.name: each.among for each in OPTIONS.values() if each.among}
    for name, known in choices.items():
        if name in linked and linked[name] not in known:
            raise ValueError(
                f"{name} must be one of {', '.join(filter(None, known))}, got {linked[name]!r:.80}"
            )
    return {name: getattr(settings, name) for name in linked}


def settings_of(trace: Trace) -> Settings | None:
    """The settings of a run, from its first event; None if it lacks some, or the controls cannot
    express them."""
    started = trace.started
    values = dict(trace.settings)
    if started is None or "verify_strategy" not in values:
        return None
    if values.get("num_draft_tokens") == "auto":
        values |= {"auto": True, "num_draft_tokens": None}
    if isinstance(stop := values.get("stop"), list):
        values["stop"] = "\n".join(str(line).replace("\n", "\\n") for line in stop)
    guided = controls_of(values.get("guided_decoding"))
    if guided is None:
        return None
    values |= guided | {
        "prompt": started.prompt or "".join(started.prompt_texts or []),
        "seed": started.seed,
    }
    if any(
        len(value) > MAX_PROMPT_CHARACTERS for value in values.values() if isinstance(value, str)
    ):
        return None  # Gradio stores the controls' values
    names = {field.name for field in fields(Settings)}
    try:
        return checked(
            {name: value for name, value in values.items() if name in names and value is not None}
        )
    except ValueError:
        return None


def guide(kind: str, text: str) -> dict[str, Any] | None:
    """The library's `guided_decoding`; None for no guide. Raises ValueError if the kind is
    unknown or the guide empty."""
    if not kind:
        return None
    if kind not in TITLES:
        raise ValueError(f"guided must be one of {', '.join(TITLES)}, got {kind!r:.80}")
    if not text.strip():
        raise ValueError(
            f"guided_text is empty: write {TITLES[kind][0].lower()}{TITLES[kind][1:]} there"
        )
    if len(text) > MAX_GUIDE_LENGTH:
        raise ValueError(f"guided_text may be {MAX_GUIDE_LENGTH} characters long, got {len(text)}")
    if kind == "choice":
        return {"choice": [line.replace("\\n", "\n") for line in text.split("\n") if line.strip()]}
    return {"regex": text} if kind == "regex" else {"json": text, "disable_any_whitespace": True}


def controls_of(guided: Mapping[str, Any] | None) -> dict[str, str] | None:
    """The controls' values for a run's `guided_decoding`; None if the controls cannot express
    it."""
    match guided or None:
        case None:
            return {}
        case {"choice": [*texts]} if all(isinstance(text, str) for text in texts):
            return {
                "guided": "choice",
                "guided_text": "\n".join(text.replace("\n", "\\n") for text in texts),
            }
        case {"regex": str(text)}:
            return {"guided": "regex", "guided_text": text}
        case {"json": schema, "disable_any_whitespace": True}:
            return {
                "guided": "json",
                "guided_text": schema if isinstance(schema, str) else json.dumps(schema),
            }
    return None


def title(trace: Trace) -> str:
    """A run's settings in one line of plain text."""
    started, settings = trace.started, trace.settings
    k, temperature = settings.get("num_draft_tokens"), settings.get("temperature")
    drafter, tree = (
        DRAFTERS.get(str(settings.get("drafter"))),
        settings.get("tree") if k != 0 else None,
    )
    parts = [
        drafter.title.lower() if drafter and drafter.title and k != 0 else "",
        f"tree {tree}" if tree else "",
        "argmax drafts" if settings.get("draft_sampling") == "argmax" else "",
        str(settings.get("verify_strategy", "")).replace("_", " "),
        f"k = {k}" if k is not None and not tree else "",
        f"temperature {temperature:g}" if isinstance(temperature, int | float) else "",
        f"seed {started.seed}" if started and started.seed is not None else "",
    ]
    return " · ".join(part for part in parts if part)[:200]


def checked(values: Mapping[str, Any]) -> Settings:
    """Settings from values by field, or the defaults. A ValueError names the field that is empty
    or has the wrong type."""
    try:
        return Settings(**values)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
