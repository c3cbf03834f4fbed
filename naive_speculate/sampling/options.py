"""Options: fields of a dataclass with what users read about them. Each place where a user sets an
option derives it from the field: the command line, the page's controls and links, and the
endpoint for programs."""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from textwrap import fill
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from naive_speculate.sampling.checked import allowed

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_KEY = "option"
_NONE = type(None)


@dataclass(frozen=True)
class Option:
    """What users read about a field. `option` writes the first part; the rest is the field's.

    Attributes:
        default: Its default.
        help: What it does, in a sentence. A link such as `(#term-seed)` leads to the page's
            glossary.
        more: What only programmers need; "" for nothing.
        none: What None means; None if it is no value.
        title: Its label on the page; None if the page has no control for it.
        step: The step of the page's slider; None without a slider.
        between: Lowest and highest value of the slider; by default the limits.
        among: Its values, if they have names.
        name: The field's name.
        form: The type of its values: bool, int, float, str, Sequence or Mapping.
        items: The type of a sequence's entries.
        limits: What it may be, in words, such as "a number, from 0 to 1".
    """

    default: Any
    help: str
    more: str = ""
    none: str | None = "none"
    title: str | None = None
    step: float | None = None
    between: tuple[float, float] | None = None
    among: Collection[str] = ()
    name: str = ""
    form: type = str
    items: type | None = None
    limits: str = ""

    @property
    def meaning(self) -> str:
        """What it does, without links."""
        return re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", f"{self.help} {self.more}".strip())

    @property
    def line(self) -> str:
        """What it does and what it may be."""
        limits = f" {self.limits[0].upper()}{self.limits[1:]}." if self.limits else ""
        none = f" None: {self.none}." if self.none and self.none != "none" else ""
        return f"{self.meaning}{limits}{none}"


def option(default: Any, help: str, **written: Any) -> Any:
    """A field that is an option; see `Option`."""
    return field(default=default, metadata={_KEY: Option(default, help, **written)})


def options_of(cls: Any) -> dict[str, Option]:
    """The options among the fields of a class that `checked` made, by name."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        each.name: _completed(
            replace(each.metadata[_KEY], name=each.name),
            hints[each.name],
            allowed(cls.__pydantic_fields__[each.name]),
        )
        for each in fields(cls)
        if _KEY in each.metadata
    }


@cache
def lists_of(cls: Any) -> dict[str, tuple[type, bool]]:
    """The fields of a class that are lists, by name: the type of their entries, and whether an
    entry may stand for a list of itself."""
    hints = get_type_hints(cls, include_extras=True)
    parts = {each.name: list(_parts(hints[each.name])) for each in fields(cls)}
    return {
        name: (items, items in of_field)
        for name, of_field in parts.items()
        if (items := _items(of_field)) is not None
    }


def documented(cls: type[T]) -> type[T]:
    """Add the options to a class's docstring, as attributes."""
    rows = [
        fill(f"{each.name}: {each.line}", 100, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for each in options_of(cls).values()
    ]
    text = inspect.cleandoc(cls.__doc__ or "")
    cls.__doc__ = "\n".join([text, "", "Attributes:", *rows])
    return cls


def takes_fields_of(cls: Any) -> Callable[[F], F]:
    """Show the fields of a class in the signature of a function that takes them as `**options`."""

    def shown(function: F) -> F:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
        names = {each.name for each in own}
        more = [
            each.replace(kind=each.KEYWORD_ONLY)
            for name, each in inspect.signature(cls).parameters.items()
            if name not in names
        ]
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *more])
        return function

    return shown


def _completed(option: Option, hint: Any, limits: str) -> Option:
    """An option with what its type says."""
    parts = list(_parts(hint))
    types = [part for part in parts if isinstance(part, type) or get_origin(part)]
    lists = [part for part in types if get_origin(part) in (Sequence, Mapping)]
    named = [value for part in types if get_origin(part) is Literal for value in get_args(part)]
    first = (lists or [part for part in types if part is not _NONE] or [str])[0]
    form = str if named else get_origin(first) or first
    among = option.among or named
    if form is bool or hint is Any:
        limits = ""
    if form is str and among:
        limits = f"{'one of ' if len(among) > 1 else ''}{', '.join(map(str, among))}"
    return replace(
        option,
        none=option.none if _NONE in types or option.default is None else None,
        between=option.between if option.step is None else option.between or _range(parts, option),
        among=among,
        form=form,
        items=_items(types),
        limits=limits,
    )


def _items(types: Sequence[Any]) -> Any:
    """The type of the entries of the list among these types; None if there is none."""
    sequences = (each for each in types if get_origin(each) is Sequence)
    return next((next(_parts(get_args(each)[0])) for each in sequences), None)


def _parts(hint: Any) -> Iterator[Any]:
    """The types of a union, each before its annotations; Any counts as none."""
    if get_origin(hint) is Annotated:
        of_type, *facts = get_args(hint)
        yield from _parts(of_type)
        for fact in facts:
            yield from getattr(fact, "metadata", ())
    elif get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from _parts(part)
    elif hint is not Any:
        yield hint


def _range(parts: Sequence[Any], option: Option) -> tuple[float, float]:
    """The lowest and highest value that annotations allow, a step within open limits."""
    names, step = ("ge", "gt", "le", "lt"), option.step or 0
    limits = {name: getattr(fact, name) for fact in parts for name in names if hasattr(fact, name)}
    low = limits["ge"] if "ge" in limits else limits["gt"] + step
    return low, limits["le"] if "le" in limits else limits["lt"] - step
