"""Dataclasses whose fields pydantic checks. An error is one line: the field, what it must be,
and what was given."""

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar, dataclass_transform, get_args

from pydantic import ConfigDict, ValidationError, WrapValidator
from pydantic.dataclasses import dataclass

T = TypeVar("T")
_STRICT = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)

_MOST_SHOWN = 80  # characters of a value that is shown

Real = Annotated[float, WrapValidator(lambda value, check: (check(value), value)[1])]
"""A number, which stays a whole one where it was given as one."""


@dataclass_transform(frozen_default=True)
def checked(prefix: str = "") -> Callable[[type[T]], type[T]]:
    """Make a frozen dataclass that raises one-line `ValueError`s. What a field must be is the
    description of its `Field`; `prefix` comes before its name."""

    def make(cls: type[T]) -> type[T]:
        made: Any = dataclass(frozen=True, config=_STRICT)(cls)
        construct = made.__init__

        @wraps(construct)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                construct(self, *args, **kwargs)
            except ValidationError as error:
                raise _one_line(made, prefix, error) from None

        made.__init__ = __init__
        return made

    return make


def _one_line(cls: Any, prefix: str, error: ValidationError) -> Exception:
    first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":  # of a check of the class's own, which is one line
        return ValueError(str(first["ctx"]["error"]))
    place, names = first["loc"][0], list(cls.__pydantic_fields__)
    if isinstance(place, int) and place >= len(names):  # of a positional argument, its number
        return TypeError(f"{cls.__name__} takes {len(names)} arguments")
    name = names[place] if isinstance(place, int) else place
    if name not in names:
        return TypeError(f"{cls.__name__} has no {name!r}")
    if first["type"] == "missing":
        return TypeError(f"{cls.__name__} needs {name!r}")
    must = allowed(cls.__pydantic_fields__[name])
    return ValueError(f"{prefix}{name} must be {must}, got {_shown(first['input'])}")


def _shown(value: object) -> str:
    """The value; of a long list its number of entries and the longest one, not a part."""
    written = repr(value)
    if len(written) <= _MOST_SHOWN or not isinstance(value, list | tuple) or not value:
        return written[:_MOST_SHOWN]
    longest = max(value, key=lambda entry: len(entry) if isinstance(entry, str) else 0)
    size = f", one of {len(longest)} characters" if isinstance(longest, str) else ""
    return f"{len(value)}{size}"


def allowed(field: Any) -> str:
    """What a field may be: the description of its type, or of the part of a union that has one."""
    parts = (field.annotation, *get_args(field.annotation))
    annotations = [field, *(info for part in parts for info in getattr(part, "__metadata__", ()))]
    texts = [text for info in annotations if (text := getattr(info, "description", None))]
    return texts[0] if texts else "True or False" if bool in parts else "of another type"
