"""What the operator decides, by environment and command line: which pairs, on which device, within which limits."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

BUNDLED = "bundled"
PREFIX = "NAIVE_SPECULATE_"
MAX_TOKENS = 2048
DTYPES = ("auto", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class PairChoice:
    """A pair that visitors may choose.

    Attributes:
        name: What they see.
        target, draft: Hub ids or local folders; None for the bundled pair, and for no draft model.
    """

    name: str
    target: str | None = None
    draft: str | None = None


@dataclass(frozen=True)
class Configuration:
    """The operator's choice.

    Attributes:
        pairs: What visitors may choose from; the first is the usual one.
        device, dtype: As for `load_pair`.
        max_tokens: Most tokens that a visitor may ask for.
        max_prompt_tokens: Longest prompt; None for what the model takes.
        queue_size: Most runs that may wait; later ones are refused with a line that says so.
        concurrency: Most runs decoded together; later ones wait.
    """

    pairs: tuple[PairChoice, ...] = field(default=(PairChoice(BUNDLED),))
    device: str = "auto"
    dtype: str = "auto"
    max_tokens: int = MAX_TOKENS
    max_prompt_tokens: int | None = None
    queue_size: int = 64
    concurrency: int = 16


def read_configuration(environ: Mapping[str, str], options: Mapping[str, Any]) -> Configuration:
    """The operator's choice, checked; options that are not None win over the environment.

    Args:
        environ: The environment variables.
        options: `target`, `draft`, `device` and `dtype` of the command line.

    Raises:
        ValueError: Naming the variable or option and what was given.
    """

    def given(name: str) -> tuple[str, str]:
        """The value, and what to call it in an error."""
        if options.get(name) is not None:
            return str(options[name]), f"--{name}"
        return environ.get(PREFIX + name.upper(), "").strip(), PREFIX + name.upper()

    pairs = _pairs(given("pairs")[0], given("target")[0], given("draft")[0])
    device, said = given("device")
    _check_device(device or "auto", said)
    dtype, said = given("dtype")
    if (dtype or "auto") not in DTYPES:
        raise ValueError(f"{said} must be one of {', '.join(DTYPES)}, got {dtype!r:.80}")
    usual = Configuration()
    return Configuration(
        pairs=pairs,
        device=device or "auto",
        dtype=dtype or "auto",
        max_tokens=_whole(*given("max_tokens"), 1, MAX_TOKENS) or usual.max_tokens,
        max_prompt_tokens=_whole(*given("max_prompt_tokens"), 16, 10**6),
        queue_size=_whole(*given("queue_size"), 1, 10**5) or usual.queue_size,
        concurrency=_whole(*given("concurrency"), 1, 256) or usual.concurrency,
    )


def _pairs(listed: str, target: str, draft: str) -> tuple[PairChoice, ...]:
    """`Name = target + draft; Name = target + draft`; the word `bundled` alone is the bundled pair."""
    if not listed:
        if draft and not target:
            raise ValueError(f"{PREFIX}DRAFT or --draft needs a target as well, got only {draft!r:.200}")
        if not target:
            return (PairChoice(BUNDLED),)
        return (PairChoice(target.rstrip("/").rsplit("/", 1)[-1], target, draft or None),)
    if target or draft:
        raise ValueError(f"give either {PREFIX}PAIRS or a target and a draft, not both")
    found = []
    for entry in filter(None, map(str.strip, listed.split(";"))):
        match = re.fullmatch(r"([^=+]+?)\s*=\s*([^=+]+?)(?:\s*\+\s*([^=+]+))?", entry)
        if entry == BUNDLED:
            found.append(PairChoice(BUNDLED))
        elif match:
            found.append(PairChoice(*match.groups()))
        else:
            raise ValueError(f"{PREFIX}PAIRS must list 'Name = target + draft' between semicolons, got {entry!r:.200}")
    names = [pair.name for pair in found]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{PREFIX}PAIRS must list at least one pair, each with a name of its own, got {listed!r:.200}")
    return tuple(found)


def _check_device(device: str, said: str) -> None:
    if device == "auto":
        return
    try:
        torch.device(device)
    except RuntimeError:
        raise ValueError(f"{said} must be auto, cpu, cuda, cuda:1 …, got {device!r:.80}") from None


def _whole(text: str, said: str, least: int, most: int) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not least <= int(text[:9]) <= most or len(text) > 9:
        raise ValueError(f"{said} must be a whole number from {least} to {most}, got {text!r:.80}")
    return int(text)
