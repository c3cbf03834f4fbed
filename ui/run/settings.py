"""What a visitor chose: the values behind the controls, as one record, and as the query string of a link."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlencode

from naive_speculate.sampling.params import SamplingParams
from naive_speculate.serving import Request
from naive_speculate.speculate.sequence import Detail

MAX_PROMPT_CHARACTERS = 100_000


@dataclass(frozen=True)
class Settings:
    """A run's settings, named as in the library.

    `num_draft_tokens` counts only where `auto` is off. `stop` holds one string a line. An empty `seed` draws one.
    An empty `pair` is the host's usual one.
    """

    prompt: str = ""
    verify_strategy: str = "speculative_sampling"
    drafter: str = "model"
    num_draft_tokens: int = 5
    auto: bool = False
    temperature: float = 0.7
    max_tokens: int = 120
    seed: int | None = 0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: str = ""
    ignore_eos: bool = False
    chat: bool = True
    pair: str = ""

    @property
    def stop_strings(self) -> list[str]:
        """The stop strings; in a line, `\\n` stands for a line break."""
        return [line.replace("\\n", "\n") for line in self.stop.split("\n") if line]

    def params(self) -> SamplingParams:
        """The library's parameters.

        Raises:
            ValueError: Names the field that is out of range.
        """
        return SamplingParams(
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=self.seed,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            stop=self.stop_strings,
            ignore_eos=self.ignore_eos,
        )

    def request(self, detail: Detail = "full") -> Request:
        """What the engine is asked for.

        Args:
            detail: "none" where only tokens and times are wanted, for the numbers take time of their own.

        Raises:
            ValueError: Names the setting that cannot be.
        """
        if not self.prompt.strip():
            raise ValueError("prompt is empty: write the beginning of a text")
        return Request(
            self.prompt,
            self.params(),
            num_draft_tokens="auto" if self.auto else self.num_draft_tokens,
            verify_strategy=self.verify_strategy,
            drafter=self.drafter,
            detail=detail,
            chat=self.chat,
        )

    def query(self, usual: "Settings") -> str:
        """The settings as a query string that `from_query` reads; what is as usual is left out."""
        values = asdict(usual)
        changed = {name: value for name, value in asdict(self).items() if value != values[name]}
        return urlencode({name: "" if value is None else value for name, value in changed.items()})


def from_query(query: Mapping[str, str]) -> dict[str, Any]:
    """The settings that a link carries, by field.

    Raises:
        ValueError: Names the value that does not fit its field.
    """
    return {
        field.name: _read(field.name, field.type, str(query[field.name])[:MAX_PROMPT_CHARACTERS])
        for field in fields(Settings)
        if field.name in query
    }


def _read(name: str, kind: Any, text: str) -> Any:
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if kind is int:
            return int(text)
        if kind is float:
            value = float(text)
            if not math.isfinite(value):
                raise ValueError
            return value
        if kind is str:
            return text
        return int(text) if text else None  # seed, which may be empty
    except (KeyError, ValueError):
        raise ValueError(f"{name} in the link cannot be {text!r:.80}") from None


def whole(name: str, value: object) -> int:
    """A number field's value as a whole number.

    Raises:
        ValueError: When the field is empty or holds something else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value != int(value):
        raise ValueError(f"{name} must be a whole number, got {value!r:.80}")
    return int(value)


def real(name: str, value: object) -> float:
    """A number field's value.

    Raises:
        ValueError: When the field is empty or holds something else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number, got {value!r:.80}")
    return float(value)


def from_controls(values: Mapping[str, Any]) -> Settings:
    """The settings as the controls hold them.

    Raises:
        ValueError: Names the field that is empty or of the wrong kind.
    """
    read: dict[str, Any] = {}
    for field in fields(Settings):
        value = values[field.name]
        if field.name == "seed":
            read["seed"] = None if value is None else whole("seed", value)
        elif field.type is int:
            read[field.name] = whole(field.name, value)
        elif field.type is float:
            read[field.name] = real(field.name, value)
        elif field.type is bool:
            read[field.name] = bool(value)
        else:
            read[field.name] = str(value or "")
    return Settings(**read)
