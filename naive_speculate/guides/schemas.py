"""JSON schemas, rewritten so that llguidance enforces each of their constraints.

What it would ignore, or follow in another sense, is refused by name. The result has the keywords
of draft 2020-12, its expressions are those of `expressions`, and all its references name an entry
of `$defs`.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import combinations, repeat
from typing import Any
from urllib.parse import unquote

from naive_speculate.guides.expressions import rewritten

_KINDS = {
    bool: "boolean", int: "integer", float: "fraction", str: "string", list: "array",
    dict: "object", type(None): "null",
}  # fmt: skip
_LISTS = {"allOf", "anyOf", "oneOf"}
_IN_PLACE = {"const", "enum", "$ref", *_LISTS}  # they may hold other keywords
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_PLAIN = _NUMBERS | {
    "type", "required", "minItems", "maxItems", "minLength", "maxLength", "minProperties",
    "maxProperties",
}  # fmt: skip
_NAMED = {"properties", "patternProperties"}
_ITEMS = {"items", "prefixItems", "additionalItems", "additionalProperties"}
_CONSTRAINTS = _IN_PLACE | _PLAIN | _NAMED | _ITEMS | {"pattern", "format"}
_OTHERS = {"additionalProperties", "patternProperties", "minProperties", "maxProperties"}
_REFUSED = {
    "not", "if", "contains", "unevaluatedItems", "unevaluatedProperties", "propertyNames",
    "dependencies", "dependentRequired", "dependentSchemas", "$dynamicRef", "$recursiveRef",
    "contentEncoding", "contentMediaType", "contentSchema", "extends", "disallow", "divisibleBy",
}  # fmt: skip
_EXACT = 2**53  # llguidance computes with floats, in which larger whole numbers are rounded
_TRIES = 2_000  # steps of a proof that no value fits two schemas

_LEAP = r"(?:..(?:0[48]|[2468][048]|[13579][26])|(?:[02468][48]|[13579][26]|[2468]0)00)"
_DATE = (
    r"(?:(?:...[1-9]|..[1-9].|.[1-9]..|[1-9]...)-(?:(?:0[13-9]|1.)-..|02-(?:[01].|2[0-8]))"
    rf"|{_LEAP}-02-29)"
)
_TIME = r"..:..:[0-5][^tz]*"
FORMATS: dict[str, tuple[str, int] | None] = {
    "date": (f"^{_DATE}$", 10),
    "time": (f"^{_TIME}$", 40),
    "date-time": (f"^{_DATE}T{_TIME}$", 50),
    "hostname": ("", 253),
    "email": (r"@[^.\[]{1,63}(?:\.[^.]{1,63})*$", 254),
    **dict.fromkeys(["duration", "ipv4", "ipv6", "uuid", "uri"]),
}
"""Formats that are enforced, and what llguidance's own lack: an expression and the greatest
length. A second 60 and the year 0 are left out: not all readers take them."""

_DECIMALS = (
    r"\d*\.?\d*$",
    r"\d*\.?\d{0,%d}0*$",
    r"(?:\d{0,%d}|(?=[\d.]{1,%d}0*$)\d*\.\d*0*$)",
    "",
    r"(?:\d{0,%d}|(?=[\d.]{1,%d}0*$)\d{0,%d}\.\d{0,%d}0*$)",
)
"""How Pydantic ends the pattern of a `Decimal`, by the number of its limits."""


def enforceable(schema: Any) -> Any:
    """The schema as llguidance enforces it.

    Raises:
        ValueError: If it holds what cannot be enforced; the message continues "json …".
    """
    reader = _Reader(schema)
    try:
        root = reader.schema(schema)
        for each in reader.choices:
            reader.check_one_of(each)
    except RecursionError:
        raise ValueError("is nested too deep") from None
    return root | {"$defs": reader.defs} if reader.defs else root


class _Reader:
    """Rewrites one document."""

    def __init__(self, document: Any) -> None:
        self.document = document
        # of each reference, and whether it describes a whole value, its name in `defs`
        self.names: dict[tuple[str, bool], str] = {}
        self.defs: dict[str, Any] = {}
        self.choices: list[Mapping[str, Any]] = []  # schemas with a `oneOf`
        self.exclusive: set[tuple[int, ...]] = set()
        self.tries = 0

    def schema(self, schema: Any, whole: bool = True) -> Any:
        """One schema, in the same order of properties. If it alone describes a value (`whole`),
        properties that it does not list are not written: a model might not end them."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise ValueError(f"must hold schemas, objects or booleans, got {schema!r:.80}")
        _refuse(schema, schema is self.document)
        alone = whole and len(schema.keys() & _CONSTRAINTS) == 1
        plain: dict[str, Any] = {}
        in_place: dict[str, Any] = {}
        also = _formatted(schema, plain)
        for key, value in schema.items():
            if key in _LISTS:
                inner = alone and (key != "allOf" or len(value) == 1)
                ways = list(map(self.schema, value, repeat(inner)))
                if key == "oneOf":  # llguidance compares only what is written out
                    self.choices.append(schema)
                    also.append({"anyOf": ways})
                else:
                    in_place[key] = ways
            elif key == "$ref":
                in_place[key] = self._reference(value, alone)
            elif key in _IN_PLACE:
                in_place[key] = value
            elif key in _NAMED:
                names = map(_pattern, value) if key == "patternProperties" else value
                plain[key] = dict(zip(names, map(self.schema, value.values()), strict=True))
            elif key in _ITEMS and (
                key != "additionalItems" or isinstance(schema.get("items"), list)
            ):
                many = isinstance(value, list) and key != "additionalProperties"
                plain[key] = list(map(self.schema, value)) if many else self.schema(value)
            elif key == "pattern":
                plain[key] = _pattern(value)
            elif key in _PLAIN:
                plain[key] = value
        if whole and not in_place and "oneOf" not in schema:
            plain = _closed(plain)
        if also:
            in_place["allOf"] = in_place.get("allOf", []) + also
        return plain | in_place

    def _reference(self, reference: Any, whole: bool) -> str:
        target, key = self._target(reference), (reference, whole)
        if key not in self.names:
            self.names[key] = name = f"d{len(self.names)}"
            self.defs[name] = self.schema(target, whole)
        return f"#/$defs/{self.names[key]}"

    def _target(self, reference: Any) -> Any:
        """What a reference names."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise ValueError(
                f"cannot follow '$ref' {reference!r:.60}, which names another document: copy it"
                " into '$defs'"
            )
        pointer, value = unquote(reference[1:]), self.document
        try:
            if pointer and not pointer.startswith("/"):
                (value,) = (each for each in _within(value) if pointer in _anchors(each))
                return value
            for segment in pointer.split("/")[1:]:
                name = segment.replace("~1", "/").replace("~0", "~")
                value = value[int(name) if isinstance(value, list) else name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ValueError(f"'$ref' {reference!r:.60} names nothing in the schema") from None
        return value

    def check_one_of(self, schema: Mapping[str, Any]) -> None:
        """Refuse a `oneOf` unless no value fits two of its schemas."""
        beside = {key: schema[key] for key in schema.keys() & _CONSTRAINTS - {"oneOf"}}
        ways = list(map(self._named, schema["oneOf"]))
        key = tuple(map(id, ways))
        if not beside and key in self.exclusive:
            return
        for (n, one), (m, other) in combinations(enumerate(ways), 2):
            self.tries = 0
            if not any(self._none_fits([beside, one, other], depth) for depth in range(1, 5)):
                raise ValueError(
                    f"cannot enforce 'oneOf', whose schemas {n} and {m} differ neither in type nor"
                    " in a required constant: use 'anyOf'"
                )
        if not beside:
            self.exclusive.add(key)

    def _named(self, schema: Any) -> Any:
        """The schema that a mere reference names."""
        for _ in range(100):
            if not isinstance(schema, Mapping) or schema.keys() & _CONSTRAINTS != {"$ref"}:
                break
            schema = self._target(schema["$ref"])
        return schema

    def _none_fits(self, schemas: list[Any], depth: int) -> bool:
        """Whether it is certain that no value fits all of these."""
        self.tries += 1
        parts: dict[int, Any] = {}
        kinds, values = {*_KINDS.values()}, None
        for schema in schemas:  # grows
            if schema is False:
                return True
            if schema is True or id(schema) in parts:
                continue
            parts[id(schema)] = {key: schema[key] for key in schema if key not in ("$ref", "allOf")}
            schemas += schema.get("allOf", ())
            schemas += [self._target(schema["$ref"])] if "$ref" in schema else ()
            if types := _texts(schema.get("type")):
                kinds &= {*types} | ({"integer", "fraction"} if "number" in types else set())
            for listed in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
                if isinstance(listed, list):
                    some = set(map(_value, listed))
                    values = some if values is None else values & some
        if values is not None:
            kinds &= {kind for kind, _ in values}
        if not kinds or depth == 0 or self.tries > _TRIES:
            return not kinds
        if kinds == {"object"}:
            for name in {name for part in parts.values() for name in _texts(part.get("required"))}:
                if self._none_fits([_property(part, name) for part in parts.values()], depth - 1):
                    return True
        for at, part in parts.items():
            for key in part.keys() & {"anyOf", "oneOf"}:
                rest = [parts[each] for each in parts if each != at]
                rest.append({each: part[each] for each in part if each != key})
                if all(self._none_fits([*rest, way], depth - 1) for way in part[key]):
                    return True
        return False


def _refuse(schema: Mapping[str, Any], top: bool) -> None:
    for key, value in schema.items():
        if key in _REFUSED or (key == "uniqueItems" and value is not False):
            raise ValueError(
                f"cannot enforce {key!r}, got {value!r:.60}: leave it out, and check the output"
            )
        if key in _LISTS and not (isinstance(value, list) and value):
            raise ValueError(f"{key} must be a list of schemas, got {value!r:.60}")
        if key in _NAMED and not isinstance(value, Mapping):
            raise ValueError(f"{key} must be an object, got {value!r:.60}")
        for number in _within(value) if key in _NUMBERS | {"const", "enum"} else ():
            large = isinstance(number, int | float) and abs(number) > _EXACT
            if large and (isinstance(number, int) or key in _NUMBERS):
                raise ValueError(f"{key} may hold numbers to {_EXACT}, got {number!r:.60}")
    if not top and isinstance(schema.get("$id"), str) and not schema["$id"].startswith("#"):
        raise ValueError(f"cannot follow '$id' below the top level, got {schema['$id']!r:.60}")
    if "prefixItems" in schema and isinstance(schema.get("items"), list):
        raise ValueError("cannot enforce a list of 'items' with 'prefixItems'")
    least, named = schema.get("minProperties"), len(_texts(schema.get("required")))
    if isinstance(least, int) and least > named + 1:
        raise ValueError(
            f"cannot enforce 'minProperties' {least} with {named} required properties, since a"
            " name may come twice"
        )


def _closed(plain: dict[str, Any]) -> dict[str, Any]:
    """The schema without properties that it does not list, if it lists some and says nothing of
    others."""
    listed = plain.get("properties")
    if not isinstance(listed, dict) or plain.keys() & _OTHERS:
        return plain
    required = dict.fromkeys(_texts(plain.get("required")), True)
    return plain | {"properties": listed | required | listed, "additionalProperties": False}


def _formatted(schema: Mapping[str, Any], plain: dict[str, Any]) -> list[Any]:
    """Take a schema's format over into `plain`; schemas of what llguidance's own lacks."""
    if "format" not in schema or "string" not in _texts(schema.get("type", "string")):
        return []
    name = plain["format"] = schema["format"]
    if str(name) not in FORMATS:
        raise ValueError(
            f"cannot enforce 'format' {name!r:.60}; it can {', '.join(sorted(FORMATS))}"
        )
    form = FORMATS[name]
    return [{"pattern": _pattern(form[0]), "maxLength": form[1]}] if form else []


def _pattern(pattern: Any) -> str:
    if not isinstance(pattern, str):
        raise ValueError(f"pattern must be text, got {pattern!r:.60}")
    try:
        return f"^(?:{rewritten(_decimal(pattern), search=True)})$"
    except ValueError as error:
        raise ValueError(f"pattern {error}") from None


def _decimal(pattern: str) -> str:
    """Pydantic's pattern of a `Decimal` without look-ahead, and to the text's end; or another."""
    limits = [int(limit) for limit in re.findall(r",(\d+)", pattern)]
    end = _DECIMALS[len(limits)] if len(limits) < 5 else ""
    if not end or pattern != r"^(?!^[-+.]*$)[+-]?0*" + end % tuple(limits):
        return pattern
    sizes: list[tuple[int | None, int | None]] = [(None, limits[0] if limits else None)]
    if len(limits) == 4:
        sizes = [(limits[0], min(limits[3], limits[1] - 1))]
    elif len(limits) == 2:
        sizes = [(whole, limits[0] - whole) for whole in range(min(limits[0], 99) + 1)]
    ways = []
    for size in sizes:
        whole, part = (r"\d+" if n is None else rf"\d{{1,{n}}}" if n else "0" for n in size)
        ways.append(rf"0*{whole}(?:\.(?:{part}0*)?)?|\.{part}0*")
    return f"^[+-]?(?:{'|'.join(ways)})$"


def _value(value: Any) -> tuple[str, Any]:
    """The kind of a value, and the value if it can be compared."""
    return _KINDS[type(value)], None if isinstance(value, dict | list) else value


def _property(part: Mapping[str, Any], name: str) -> Any:
    """What a schema says of a property's value."""
    if name in part.get("properties", ()):
        return part["properties"][name]
    return "patternProperties" in part or part.get("additionalProperties", True)


def _texts(value: Any) -> list[str]:
    return [
        each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)
    ]


def _within(value: Any) -> Iterator[Any]:
    """A value and all within it."""
    yield value
    inner = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    )
    for each in inner:
        yield from _within(each)


def _anchors(value: Any) -> list[str]:
    """The names of an object, as newer and older drafts give them."""
    if not isinstance(value, Mapping):
        return []
    names = _texts([value.get(key) for key in ("$anchor", "$dynamicAnchor")])
    return names + [name[1:] for name in _texts(value.get("$id")) if name.startswith("#")]
