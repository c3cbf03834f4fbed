"""What an adapter does with a trial's requests. Only the standard library: an adapter runs in its
engine's own environment.

An adapter is a script with its requirements in its first lines (PEP 723). It calls `serve` with a
function that loads the two models of a folder and returns `draw(Ask) -> Answer`. Requests and
answers are JSON objects, one per line.
"""

import contextlib
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

VOCAB = 16  # tokens of the tiny models


@dataclass(frozen=True)
class Ask:
    """One text. `way`: "plain", or one of the adapter's ways to draft."""

    prompt: list[int]
    way: str = "plain"
    max_tokens: int = 8
    seed: int = 0
    temperature: float = 0.0  # 0: greedy
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)  # those of `options.py`, by name


@dataclass(frozen=True)
class Answer:
    """Its token ids, and what the engine says of them."""

    token_ids: list[int]
    drafted: int | None = None  # draft tokens, by the engine's own count
    accepted: int | None = None
    logprobs: list[float | None] | None = None
    passes: int | None = None  # forwards of the target


def allowed(options: dict[str, Any]) -> list[int] | None:
    """The tokens that a request's options allow, for engines that take a mask; None for all."""
    forbidden = options.get("forbidden", ())
    if forbidden:
        return [token for token in range(VOCAB) if token not in forbidden]
    return options.get("allowed")


Draw = Callable[[Ask], Answer]


@dataclass(frozen=True)
class Engine:
    """What an adapter says of its engine."""

    packages: list[str]  # whose versions are reported; the first is the engine
    ways: list[str]  # ways to draft
    rule: str  # its acceptance rule, in words
    source: str  # file and function that say so
    counts: str = ""  # what its acceptance figure counts
    top_p_first: bool = False  # whether top-p is applied before temperature
    options: list[str] = field(default_factory=list)  # those of `options.py` that it takes
    # settings that it refuses ("min-p", or of one way "min-p, draft model"), with the reason
    skips: dict[str, str] = field(default_factory=dict)
    not_greedy: dict[str, str] = field(default_factory=dict)  # why these ways cannot be greedy
    not_timed: str = ""  # why its "draft model" is not measured with SmolLM2
    smallest: float = 0.15  # smallest bias worth finding, as total variation
    versions: dict[str, str] = field(default_factory=dict)  # of what pip does not install


def serve(engine: Engine, load: Callable[[str], Draw] | None = None) -> None:
    """Answer the requests on standard input until it ends; `load` gets the models' folder. An
    engine that has nothing to try has no `load`, and answers nothing."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print to standard output
    with contextlib.redirect_stdout(sys.stderr):
        draw = None if load is None else load(sys.argv[1])
        versions = engine.versions | {name: version(name) for name in engine.packages}
        versions["Python"] = platform.python_version()
        _say(answers, asdict(engine) | {"versions": versions})
        if draw is None:
            return
        for line in sys.stdin:
            _say(answers, asdict(draw(Ask(**json.loads(line)))))


def _say(file: Any, answer: dict[str, Any]) -> None:
    file.write(json.dumps(answer) + "\n")
    file.flush()
