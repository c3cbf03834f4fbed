"""JSON schemas of guides: no text that breaks the schema is allowed, and what cannot be enforced
is refused by its keyword."""

import json
import random
import re
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Literal
from uuid import UUID

import pytest
import torch
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from naive_speculate import GuidedDecodingParams
from tests.guides.raw_bytes import COMPILER, END, allows

AB = {"a": {"type": "integer"}, "b": {"type": "integer"}}
DEFS = {"$defs": {"n": {"type": "integer"}, "a/b": {"$anchor": "here", "type": "null"}}}
TREE = {
    "$defs": {"t": {"properties": {"l": {"$ref": "#/$defs/t"}}, "additionalProperties": False}},
    "type": "object",
    "$ref": "#/$defs/t",
}
DOUBLED = {
    "$defs": {
        f"d{n}": {"properties": {key: {"$ref": f"#/$defs/d{n + 1}"} for key in "ab"}}
        for n in range(20)
    }
    | {"d20": {"type": "string"}},
    "allOf": [{"$ref": "#/$defs/d0"}] * 2,
}
ONLY_A = {"type": "object", "properties": {"a": {"type": "integer"}}}
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
        ({"type": "object", "properties": AB}, '{"a": 1}', '{"c": 1}'),
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
        ({"oneOf": [{"const": 1}, {"const": True}, {"enum": [2, "1"]}]}, "2", "3"),
        (
            {"oneOf": [{**ONLY_A, "required": ["a"]}, {**ONLY_A, "additionalProperties": False,
             "properties": {"b": {}}, "required": ["b"]}]}, '{"b": 1}', '{"a": 1, "b": 1}',
        ),
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


class Cat(BaseModel):
    kind: Literal["cat"]
    age: int = Field(gt=3, lt=100, multiple_of=5)
    mother: "Cat | None" = None


class Dog(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["dog", "hound"]
    friends: list["Pet"] = Field(max_length=2)
    by_name: dict[str, "Pet"] = {}


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Both(BaseModel):
    op: Literal[1]
    left: "Term"
    right: "Term"


class Either(BaseModel):
    op: Literal[2, 3]
    left: "Term"
    right: "Term | None"


class Fact(BaseModel):
    op: Literal["is"]
    of: Pet | None


Term = Annotated[Both | Either | Fact, Field(discriminator="op")]


class Words(BaseModel):
    word: str = Field(pattern=r"^[a-z]+\d?$", max_length=4)
    more: list["Words"] = []


class Amounts(BaseModel):
    free: Decimal
    digits: Decimal = Field(max_digits=3)
    places: Decimal = Field(decimal_places=1)
    both: Decimal = Field(max_digits=5, decimal_places=2)
    small: Decimal = Field(max_digits=2, decimal_places=4)


class Moment(BaseModel):
    at: datetime
    day: date
    by: UUID
    colour: Enum("Colour", {"red": "red", "blue": "blue"}, type=str)
    pair: tuple[int, float]
    one: Literal[1, "a", True, None]


for model in (Cat, Dog, Both, Either, Words):
    model.model_rebuild()


def walk(guide: dict, rng: random.Random) -> str | None:
    """A random text that a guide allows; None if it does not end soon."""
    mask = COMPILER.compile(GuidedDecodingParams(**guide))
    history: list[int] = []
    while len(history) < 250:
        scores = torch.zeros(END + 1)
        mask.apply(scores, history)
        allowed = scores.isfinite().nonzero().flatten().tolist()
        closing = [token for token in allowed if token in {*b'"]}'}]
        if END in allowed:
            return bytes(history).decode()
        history.append(rng.choice(closing if closing and rng.random() < 0.4 else allowed))
    return None


@pytest.mark.parametrize("kind", [Pet, Pet | None, list[Pet], Term, Words, Amounts, Moment])
def test_every_text_that_the_guide_of_a_pydantic_type_allows_fits_its_schema_and_type(kind):
    kind = TypeAdapter(kind)
    schema = kind.json_schema(mode="serialization")
    reader = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    guide = {"json": schema, "disable_any_whitespace": True}
    texts = {walk(guide, random.Random(seed)) for seed in range(6)} - {None}
    assert len(texts) > 1
    for text in texts:
        reader.validate(json.loads(text))
        kind.validate_json(text)


def test_the_guide_of_a_decimal_allows_what_its_pattern_matches():
    numbers = ["0", "007", "12.", ".5", "+1.50", "-12.345", "123.4", "1234", "1000.00", "00.0010"]
    for name, schema in Amounts.model_json_schema(mode="serialization")["properties"].items():
        # Pydantic's own does not end after whole digits alone
        ended = schema["pattern"].replace("|(?=", "$|(?=")
        for text in [*numbers, ".", "-", "", "1e5", "١"]:
            fits = re.search(ended, text, re.ASCII) is not None
            assert allows({"json": schema}, json.dumps(text, ensure_ascii=False)) is fits, (
                name,
                text,
            )


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
        ({"minimum": 2**53 + 1}, "minimum may hold numbers to 9007199254740992"),
        ({"const": 10**20}, "const may hold numbers to"),
        *(
            ({"oneOf": ways, **DEFS}, f"'oneOf', whose schemas 0 and {at} differ neither in type")
            for at, ways in (
                (1, [{"minimum": 0}, {"maximum": 9}]),
                (1, [{"type": "integer"}, {"const": 1.0}]),
                (1, [{"const": {"a": 1}}, {"type": "object"}]),
                (2, [{"$ref": "#/$defs/n"}, {"type": "null"}, {"enum": ["x", 7]}]),
                (1, [{"properties": {"k": {"const": each}}} for each in "ab"]),
                (1, [{**ONLY_A, "required": ["a"]}, {"type": "object", "properties": {"b": {}}}]),
            )
        ),
        (DOUBLED, "Schema intersection stack level exceeded"),
        ({"maxProperties": 1, "properties": {**AB, "c": {}}, "minProperties": 1}, "maxProperties"),
    ],
)  # fmt: skip
def test_what_cannot_be_enforced_is_refused_by_its_keyword(schema, said):
    with pytest.raises(ValueError, match=r"^guided_decoding json ") as raised:
        GuidedDecodingParams(json=schema)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
