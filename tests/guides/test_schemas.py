"""JSON schemas of guides: no text that breaks the schema is allowed, and what cannot be enforced
is refused by its keyword."""

import json

import pytest

from naive_speculate import GuidedDecodingParams
from tests.guides.raw_bytes import allows

AB = {"a": {"type": "integer"}, "b": {"type": "integer"}}
DEFS = {"$defs": {"n": {"type": "integer"}, "a/b": {"$anchor": "here", "type": "null"}}}
TREE = {
    "$defs": {"t": {"properties": {"l": {"$ref": "#/$defs/t"}}, "additionalProperties": False}},
    "type": "object",
    "$ref": "#/$defs/t",
}
DOUBLED, CHOSEN = (
    {
        "$defs": {
            **{f"d{n}": {key: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)},
            "d40": {"type": "string"},
        },
        "$ref": "#/$defs/d0",
    }
    for key in ("allOf", "oneOf")
)
PETS = {
    "components": {
        "cat": {"type": "object", "properties": {"k": {"const": "c"}}, "required": ["k"]},
        "dog": {"type": "object", "properties": {"k": {"const": "d"}}, "required": ["k"]},
    },
    "oneOf": [{"$ref": "#/components/cat"}, {"$ref": "#/components/dog"}],
}


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"type": "object", "properties": AB, "required": ["z"]}, '{"z": 1}', '{"a": 1}'),
        ({"minimum": 3}, "3", "2"),
        ({"minimum": 3}, '"x"', "2.9"),
        ({"pattern": "^a$"}, '"a"', '"b"'),
        ({"type": "string", "pattern": r"\d"}, '"a1"', '"a"'),
        ({"type": "string", "pattern": r"^\W$"}, '"-"', '"é"'),
        ({"type": "string", "pattern": "^[a-z]*$", "maxLength": 3}, '"abc"', '"abcd"'),
        ({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}, "4", "6"),
        ({"type": "number", "multipleOf": 0.01}, "1.25", "1.255"),
        ({"$ref": "#/$defs/n", "minimum": 5, **DEFS}, "5", "4"),
        ({"$ref": "#/$defs/a~1b", **DEFS}, "null", "4"),
        ({"$ref": "#here", **DEFS}, "null", "4"),
        (TREE, '{"l": {"l": {}}}', '{"l": {"r": {}}}'),
        (PETS, '{"k": "d"}', '{"k": "e"}'),
        ({"oneOf": [{"type": "null"}, {"type": "integer", "maximum": 3}]}, "3", "4"),
        ({"format": "date"}, '"2024-02-29"', '"2023-02-29"'),
        ({"format": "date"}, '"2000-02-29"', '"1900-02-29"'),
        ({"format": "date"}, '"2026-12-31"', '"0000-01-01"'),
        ({"format": "date-time"}, '"2026-01-01T00:00:00Z"', '"2026-01-01T24:00:00Z"'),
        ({"format": "hostname"}, '"a.example"', f'"{"a." * 130}com"'),
        ({"format": "ipv4"}, '"127.0.0.1"', '"127.0.0.256"'),
        ({"type": ["integer", "null"], "format": "int32"}, "3", '"3"'),
        ({"exclusiveMinimum": True, "minimum": 3}, "4", "3"),
        ({"items": [{"type": "null"}], "additionalItems": False}, "[null]", "[null, 1]"),
        ({"prefixItems": [{"type": "null"}], "$schema": "draft-07"}, "[null]", "[1]"),
        ({"additionalProperties": {"type": "string"}, "properties": AB}, '{"c": ""}', '{"a": ""}'),
        (
            {"additionalProperties": {"type": "string"}, "properties": AB},
            '{"a": 1}',
            r'{"\u0061": ""}',
        ),
        ({"minProperties": 2, "required": ["a"]}, '{"a": 1, "b": 1}', '{"a": 1, "a": 1}'),
        ({"enum": [1, 5], "minimum": 3}, "5", "1"),
        ({"x-guidance": {"lenient": True, "item_separator": ";"}}, "[1, 2]", "[1;2]"),
        ({"uniqueItems": False, "then": False, "title": 3, "unknown": [1]}, "[1, 1]", "[1, 1"),
        ({"properties": {"not": {"type": "null"}}}, '{"not": null}', '{"not": 1}'),
        (False, None, "1"),
    ],
)  # fmt: skip
def test_a_schema_allows_what_fits_and_nothing_else(schema, valid, invalid):
    guide = {"json": json.dumps(schema), "disable_any_whitespace": True}
    if valid is None:
        with pytest.raises(ValueError, match="guided_decoding json is refused"):
            GuidedDecodingParams(**guide)
        return
    assert allows(guide, valid)
    assert not allows(guide, invalid)
    assert allows({"json": json.dumps(schema)}, valid)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        *(
            ({key: value}, f"cannot enforce {key!r}")
            for key, value in {
                "uniqueItems": True,
                "contains": {},
                "not": {},
                "if": {},
                "dependentRequired": {},
                "dependentSchemas": {},
                "dependencies": {},
                "propertyNames": {},
                "unevaluatedProperties": False,
                "unevaluatedItems": False,
                "$dynamicRef": "#a",
                "$recursiveRef": "#",
                "contentEncoding": "base64",
            }.items()
        ),
        ({"properties": {"a": {"items": {"not": {}}}}}, "cannot enforce 'not'"),
        ({"$ref": "#/hidden", "hidden": {"not": {}}}, "cannot enforce 'not'"),
        ({"minProperties": 2}, "cannot enforce 'minProperties' 2 with 0 required"),
        ({"format": "iri"}, "cannot enforce 'format' 'iri'; it can date, "),
        ({"format": "unknown"}, "cannot enforce 'format' 'unknown'"),
        ({"pattern": "(?=a)a"}, "pattern does not support look-ahead"),
        ({"patternProperties": {r"\ba": {}}}, "pattern does not support"),
        ({"patternProperties": {"a": {}, "b": {}}}, "not disjoint"),
        ({"$ref": "https://example.org/a"}, "'https://example.org/a', which names another doc"),
        ({"$ref": "#/$defs/a"}, "'#/$defs/a' names nothing in the schema"),
        ({"properties": {"a": {"$id": "b", "$ref": "#"}}}, "cannot follow '$id' below the top"),
        ({"minimum": 2**53 + 1}, "minimum may be 9007199254740992 at most"),
        ({"const": 10**20}, "const may hold whole numbers to"),
        ({"oneOf": [{"minimum": 0}, {"maximum": 9}]}, "oneOf"),
        (DOUBLED, "may stand for 20000 schemas"),
        (CHOSEN, "may stand for 20000 schemas"),
        ({"maxProperties": 1, "properties": {**AB, "c": {}}, "minProperties": 1}, "maxProperties"),
    ],
)  # fmt: skip
def test_what_cannot_be_enforced_is_refused_by_its_keyword(schema, said):
    with pytest.raises(ValueError, match=r"^guided_decoding json ") as raised:
        GuidedDecodingParams(json=schema)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
