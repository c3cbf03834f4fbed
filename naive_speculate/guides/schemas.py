"""JSON schemas, rewritten so that llguidance enforces each of their constraints.

What it would ignore, or follow in another sense, is refused by name. The result has the keywords
of draft 2020-12, its expressions are those of `expressions`, and all its references name an entry
of `$defs`.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from naive_speculate.guides.expressions import rewritten

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_NAMED = {"properties", "patternProperties"}
_SIZES = {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_IN_PLACE = ("const", "enum", "allOf", "anyOf", "oneOf", "$ref")  # they may hold other keywords
_OTHERS = {"additionalProperties", "patternProperties", "minProperties", "maxProperties"}
_CONSTRAINTS = {
    *_NAMED, *_SIZES, *_NUMBERS, *_IN_PLACE, "type", "required", "items", "prefixItems",
    "additionalProperties", "additionalItems", "pattern", "format",
}  # fmt: skip
_REFUSED = {
    "not", "if", "contains", "unevaluatedItems", "unevaluatedProperties", "propertyNames",
    "dependencies", "dependentRequired", "dependentSchemas", "$dynamicRef", "$recursiveRef",
    "contentEncoding", "contentMediaType", "contentSchema", "extends", "disallow", "divisibleBy",
}  # fmt: skip
_ALONE = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}
"""Keywords that mean nothing without another."""
MAX_SCHEMAS = 20_000
"""Schemas that a document may stand for: forty that each name the next one twice stand for 2^40,
and llguidance would merge them all."""
_EXACT = 2**53
"""llguidance computes with floats, in which larger whole numbers are rounded."""

_DAY = r"(?:0[1-9]|1[0-9]|2[0-8])"
_LEAP = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][48]|[13579][26]|[2468]0)00)"
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-{_DAY}|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    rf"|{_LEAP}-02-29)"
)
_HOUR = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR}:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-]{_HOUR})"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_WORD = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
FORMATS: dict[str, tuple[str, int] | None] = {
    "date": (rf"^(?:{_DATE})$", 10),
    "time": (rf"^(?:{_TIME})$", 40),
    "date-time": (rf"^(?:{_DATE})T(?:{_TIME})$", 50),
    "hostname": (rf"^{_HOST}$", 253),
    "email": (rf"^{_WORD}(?:\.{_WORD})*@{_HOST}$", 254),
    **dict.fromkeys(["duration", "ipv4", "ipv6", "uuid", "uri"]),
}
"""Formats that are enforced: an expression and the greatest length, or None for llguidance's
own. A second 60 and the year 0 are left out: not all readers take them."""


def enforceable(schema: Any) -> Any:
    """The schema as llguidance enforces it.

    Raises:
        ValueError: If it holds what cannot be enforced; the message continues "json …".
    """
    try:
        return _Reader(schema).read()
    except RecursionError:
        raise ValueError("is nested too deep") from None


class _Reader:
    """Rewrites one document."""

    def __init__(self, document: Any) -> None:
        self.document = document
        # of each reference, and whether it describes a whole value, its name in `$defs`
        self.names: dict[tuple[str, bool], str] = {}
        self.defs: dict[str, Any] = {}
        self.costs: dict[tuple[str, bool], int] = {}  # and how many schemas it stands for
        self.cost = 0
        self.inside: list[str] = []  # references whose schemas are being read

    def read(self) -> Any:
        root = self.schema(self.document, top=True)
        if isinstance(root, dict) and self.defs:
            return root | {"$defs": self.defs}
        return root

    def schema(self, schema: Any, whole: bool = True, *, top: bool = False) -> Any:
        """One schema, in the same order of properties. If it alone describes a value (`whole`),
        properties that it does not list are not written: a model might not end them."""
        if not isinstance(schema, Mapping):
            if isinstance(schema, bool):
                return schema
            raise ValueError(
                f"must hold schemas, which are objects or booleans, got {schema!r:.80}"
            )
        self._refuse(schema, top)
        self.cost += 1
        if self.cost > MAX_SCHEMAS:
            raise ValueError(
                f"may stand for {MAX_SCHEMAS} schemas, each '$ref' written out, got more"
            )
        plain: dict[str, Any] = {}
        in_place: dict[str, Any] = {}
        constraining = [key for key in schema if key in _CONSTRAINTS]
        alone = whole and len(constraining) == 1
        for key, value in schema.items():
            if key in _IN_PLACE:
                in_place[key] = self._in_place(key, value, alone)
            else:
                plain |= self._plain(key, value, schema)
        if whole and not in_place:
            plain = _closed(plain)
        return plain | self._items(schema) | self._string(schema, in_place) | in_place

    def _refuse(self, schema: Mapping[str, Any], top: bool) -> None:
        for key in schema:
            if key in _REFUSED or (key == "uniqueItems" and schema[key] is not False):
                raise ValueError(
                    f"cannot enforce {key!r}, got {schema[key]!r:.60}: leave it out, and check the"
                    " output for it"
                )
            if key in _ALONE and _ALONE[key] in schema:
                raise ValueError(f"cannot enforce {key!r}")
        if not top and isinstance(schema.get("$id"), str) and not schema["$id"].startswith("#"):
            raise ValueError(f"cannot follow '$id' below the top level, got {schema['$id']!r:.60}")
        least, required = schema.get("minProperties"), schema.get("required")
        named = len(required) if isinstance(required, list) else 0
        if isinstance(least, int) and least > named + 1:
            raise ValueError(
                f"cannot enforce 'minProperties' {least} with {named} required properties, since"
                " a name may come twice"
            )

    def _plain(self, key: str, value: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
        """A keyword that holds no other schema in place; unknown ones mean nothing."""
        if key in _NAMED:
            if not isinstance(value, Mapping):
                raise ValueError(f"{key} must be an object, got {value!r:.60}")
            return {
                key: {
                    self._pattern(name) if key == "patternProperties" else name: self.schema(each)
                    for name, each in value.items()
                }
            }
        if key == "additionalProperties":
            return {key: self.schema(value)}
        if key in _NUMBERS:
            return self._number(key, value, schema)
        if key == "type" and (wrong := [each for each in _listed(value) if each not in _TYPES]):
            raise ValueError(f"type must be one of {', '.join(_TYPES)}, got {wrong[0]!r:.60}")
        if key in ("type", "required") or key in _SIZES:
            return {key: int(value) if isinstance(value, float) and value.is_integer() else value}
        return {}

    def _number(self, key: str, value: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
        bound = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(key)
        if bound and isinstance(value, bool):  # draft 4
            return {key: schema[bound]} if value and bound in schema else {}
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key} must be a number, got {value!r:.60}")
        if abs(value) > _EXACT:
            raise ValueError(f"{key} may be {_EXACT} at most, got {value!r:.60}")
        return {key: value}

    def _items(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """`prefixItems` and `items`, which older drafts call `items` and `additionalItems`."""
        items, first = schema.get("items"), schema.get("prefixItems")
        if isinstance(items, list):
            if first is not None:
                raise ValueError("cannot enforce a list of 'items' with 'prefixItems'")
            items, first = schema.get("additionalItems"), items
        if first is not None and not isinstance(first, list):
            raise ValueError(f"prefixItems must be a list of schemas, got {first!r:.60}")
        tuple_items = (
            {} if first is None else {"prefixItems": [self.schema(each) for each in first]}
        )
        return tuple_items if items is None else tuple_items | {"items": self.schema(items)}

    def _string(self, schema: Mapping[str, Any], in_place: dict[str, Any]) -> dict[str, Any]:
        """`pattern` and `format`; more than one expression goes into `allOf`."""
        rules: dict[str, Any] = {}
        if "pattern" in schema:
            rules["pattern"] = self._pattern(schema["pattern"])
        if "format" not in schema or "string" not in _listed(schema.get("type", "string")):
            return rules
        name = schema["format"]
        if name not in FORMATS:
            raise ValueError(
                f"cannot enforce 'format' {name!r:.60}; it can {', '.join(sorted(FORMATS))}"
            )
        if (form := FORMATS[name]) is None:
            return rules | {"format": name}
        also = {"pattern": self._pattern(form[0]), "maxLength": form[1]}
        in_place["allOf"] = [*in_place.get("allOf", ()), also]
        return rules

    def _pattern(self, pattern: Any) -> str:
        if not isinstance(pattern, str):
            raise ValueError(f"pattern must be text, got {pattern!r:.60}")
        try:
            return f"^(?:{rewritten(pattern, search=True)})$"
        except ValueError as error:
            raise ValueError(f"pattern {error}") from None

    def _in_place(self, key: str, value: Any, alone: bool) -> Any:
        """A keyword that constrains the same value, `alone` if no other does."""
        if key == "$ref":
            return self._reference(value, alone)
        if key in ("const", "enum"):
            for number in _numbers(value):
                if isinstance(number, int) and abs(number) > _EXACT:
                    raise ValueError(f"{key} may hold whole numbers to {_EXACT}, got {number}")
            return value
        if not isinstance(value, list) or not value:
            raise ValueError(f"{key} must be a list of schemas, got {value!r:.60}")
        if key == "oneOf":  # llguidance compares only schemas that are written out
            return [self._written_out(each, alone) for each in value]
        return [self.schema(each, alone and (key == "anyOf" or len(value) == 1)) for each in value]

    def _written_out(self, schema: Any, whole: bool) -> Any:
        if isinstance(schema, Mapping) and set(schema) == {"$ref"} and schema["$ref"] != "#":
            reference = schema["$ref"]
            if reference not in self.inside:
                return self._target(reference, whole)
        return self.schema(schema, whole)

    def _reference(self, reference: Any, whole: bool) -> str:
        if not isinstance(reference, str):
            raise ValueError(f"$ref must be text, got {reference!r:.60}")
        key = reference, whole
        if key not in self.names:
            self.names[key] = name = f"d{len(self.names)}"
            before = self.cost
            self.defs[name] = self._target(reference, whole)
            self.costs[key] = self.cost - before
        elif not whole:  # llguidance merges it with others, and writes it out
            self.cost += self.costs.get(key, 1)
        return f"#/$defs/{self.names[key]}"

    def _target(self, reference: Any, whole: bool) -> Any:
        """The schema that a reference names."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise ValueError(
                f"cannot follow '$ref' {reference!r:.60}, which names another document: copy it"
                " into '$defs'"
            )
        self.inside.append(reference)
        at = self._at(unquote(reference[1:]), reference)
        written = self.schema(at, whole, top=at is self.document)
        self.inside.pop()
        return written

    def _at(self, pointer: str, reference: str) -> Any:
        missing = ValueError(f"'$ref' {reference!r:.60} names nothing in the schema")
        if not pointer:
            return self.document
        if not pointer.startswith("/"):
            parts = [part for part in _parts(self.document) if _anchor(part) == pointer]
            if len(parts) != 1:
                raise missing
            return parts[0]
        value = self.document
        for segment in pointer[1:].split("/"):
            name = segment.replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(name) if isinstance(value, list) else name]
            except (KeyError, IndexError, ValueError, TypeError):
                raise missing from None
        return value


def _closed(plain: dict[str, Any]) -> dict[str, Any]:
    """The schema without properties that it does not list, if it lists some and says nothing of
    others."""
    if "properties" not in plain or plain.keys() & _OTHERS:
        return plain
    required = plain.get("required")
    unlisted = required if isinstance(required, list) else []
    listed = dict.fromkeys((name for name in unlisted if isinstance(name, str)), True)
    properties = plain["properties"] | {
        name: value for name, value in listed.items() if name not in plain["properties"]
    }
    return plain | {"properties": properties, "additionalProperties": False}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    """All objects within a document."""
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _parts(each)


def _anchor(part: Mapping[str, Any]) -> Any:
    """An object's own name, as newer and older drafts give it."""
    identifier = part.get("$id")
    old = identifier[1:] if isinstance(identifier, str) and identifier.startswith("#") else None
    return part.get("$anchor", part.get("$dynamicAnchor", old))


def _numbers(value: Any) -> Iterator[int | float]:
    """All numbers within a value."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value
