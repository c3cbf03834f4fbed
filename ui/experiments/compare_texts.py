"""The room that explains why two texts of the same prompt differ (`naive_speculate.differ`), for
the chosen pair's target."""

import json
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from naive_speculate.models import load_pair
from naive_speculate.pair import BUNDLED_PAIR
from naive_speculate.tools.differ import Scores, compare
from ui.assets import ROOT, component, render
from ui.experiments.rooms import answer_form, room, text_of
from ui.host.catalog import Catalog, ServedPair
from ui.labels import end_of
from ui.run import controls as parts

TITLE = "These cannot be compared"
FIELDS = {"prompt": ("the prompt", 1000), "a": ("text A", 1600), "b": ("text B", 1600)}
"""The form's texts and their longest inputs, by field name."""
EXAMPLES = {
    "Example: temperature 0": ROOT / "differ" / "greedy.json",
    "Example: two samples": ROOT / "differ" / "samples.json",
}
"""Files with texts to begin with, by the names of their buttons."""
MOST_TOKENS = 320
"""Of prompt and text together. SmolLM2 takes a third of a second of processor time per token:
bfloat16 is slow on most CPUs."""
HALF = "bfloat16"
MOST_PARAMETERS = 1_000_000_000  # of a target that is loaded twice more: 6 GB for a billion
_loading = Lock()


def build_compare_texts(catalog: Catalog, controls: parts.Controls) -> None:
    """Build the room inside the current Blocks context; the controls name the pair."""
    limits = {name: most for name, (_, most) in FIELDS.items()}
    examples = {name: json.loads(file.read_text("utf-8")) for name, file in EXAMPLES.items()}
    markup = room("differ", "differ", limits=limits, tokens=MOST_TOKENS, examples=examples)
    names = {"label": "Why do two texts differ?", "elem_id": "differ"}
    view = component("rooms", markup, mount="mountDiffer", events=["compare"], **names)
    # With the timed experiments: one after another, across all visitors.
    queue: dict[str, Any] = {"concurrency_id": "measuring", "concurrency_limit": 1}
    answer_form(view.compare, view, partial(findings, catalog), TITLE, controls["pair"], **queue)


def findings(catalog: Catalog, asked: dict[str, Any], pair: str) -> dict[str, Any]:
    """The answer of a pair's target as "words" in HTML; a ValueError names the invalid field.

    The browser `asked` for "prompt", "a" and "b"; "chat" if the prompt was in the chat template,
    "greedy" if both texts were decoded at temperature 0.
    """
    fields = {name: text_of(asked, name, *rule) for name, rule in FIELDS.items()}
    served = catalog.of(pair)
    full, half = scores_of(catalog, pair)
    for name in ("a", "b"):
        length = (
            len(full.pair.tokenizer(fields["prompt"] + fields[name]).input_ids)
            if full.pair.tokenizer
            else 0
        )
        if length > MOST_TOKENS:
            raise ValueError(
                f"the prompt and {FIELDS[name][0]} may have at most {MOST_TOKENS} tokens together,"
                f" got {length}"
            )
    chat = bool(asked.get("chat")) and served.engine.about.chat
    prompt, a, b = fields.values()
    difference = compare(full, half, prompt, a, b, chat=chat, greedy=bool(asked.get("greedy")))
    tokens = (
        {"A": difference.token_a, "B": difference.token_b} if difference.index is not None else {}
    )
    return {
        "words": render(
            "differ_findings", found=difference, before=end_of(difference.before), tokens=tokens
        )
    }


def scores_of(catalog: Catalog, pair: str) -> tuple[Scores, Scores]:
    """Both copies of a pair's target; those of the last pair stay loaded. Raises ValueError if
    there is no such pair, or its target is too large, or cannot be loaded once more."""
    source = source_of(catalog.of(pair))
    with _loading:
        return _load(source or BUNDLED_PAIR / "target")


def source_of(served: ServedPair) -> str | None:
    """Where a pair's target can be loaded from twice more; None for the bundled pair. Raises
    ValueError if it is too large or its place is unknown."""
    if served.engine.about.num_parameters.get("target", 0) > MOST_PARAMETERS:
        raise ValueError(
            "the target is too large to be loaded twice more: use python -m naive_speculate differ"
        )
    if served.target is None and not served.is_tales:
        raise ValueError("the page does not know where this pair's target was loaded from")
    return served.target


@lru_cache(maxsize=1)
def _load(target: str | Path) -> tuple[Scores, Scores]:
    full, half = (
        Scores(load_pair(target, device="cpu", dtype=dtype), dtype) for dtype in ("float32", HALF)
    )
    return full, half
