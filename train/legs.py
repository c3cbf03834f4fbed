"""The legs of a target's training, kept beside the exported pair: a target that goes on from another tells of both."""

import json
from pathlib import Path
from typing import Any

from train.config import TogetherRecipe
from train.errors import TrainingError

FILE = "training.json"
HEADINGS = ("layers × width", "texts", "tokens", "steps", "tokens a step", "minutes", "Muon", "AdamW")
Leg = dict[str, Any]
"""``layers`` and ``hidden``; and ``texts`` (names), ``tokens``, ``steps``, ``batch_tokens``, ``minutes``, ``muon_rate`` and
``adam_rate``, where they are known; ``together`` where its drafters learned with it."""


def earlier_legs(init: Path | None) -> list[Leg]:
    """What made the exported target in this folder: what is told beside it, or else its shape alone.

    Raises:
        TrainingError: If there is no exported model.
    """
    if init is None:
        return []
    told = init.parent / FILE
    if told.is_file():
        legs: list[Leg] = json.loads(told.read_text(encoding="utf-8"))
        return legs
    if not (init / "config.json").is_file():
        raise TrainingError(f"--init: no exported model in {init}")
    config = json.loads((init / "config.json").read_text(encoding="utf-8"))
    return [{"layers": config["num_hidden_layers"], "hidden": config["hidden_size"]}]


def this_leg(recipe: dict[str, Any], data: dict[str, Any], run: dict[str, int]) -> Leg:
    """The leg that a recipe, the data's card and the last line of the target's log tell of."""
    return {
        "layers": recipe["target"]["layers"],
        "hidden": recipe["target"]["hidden"],
        "texts": list(data["source"]["files"]),
        "tokens": run["tokens"],
        "steps": run["step"],
        "batch_tokens": recipe["batch_tokens"],
        "minutes": round(run["seconds"] / 60),
        "muon_rate": recipe["muon_rate"],
        "adam_rate": recipe["adam_rate"],
    }


def joint_leg(recipe: dict[str, Any], joint: TogetherRecipe, data: dict[str, Any], run: dict[str, int]) -> Leg:
    """The leg in which the target learned together with its drafters."""
    rates = {"muon_rate": joint.muon_rate * joint.target_share, "adam_rate": joint.adam_rate * joint.target_share}
    return this_leg(recipe | rates | {"batch_tokens": joint.batch_tokens}, data, run) | {"together": True}


def table(legs: list[Leg]) -> str:
    """A row for each leg."""
    lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    for leg in legs:
        cells = [f"{leg['layers']} × {leg['hidden']}"]
        if "tokens" in leg:
            tokens = f"{leg['tokens'] / 1e6:.1f} M"
            texts = ", ".join(leg["texts"]) + (", its own; with its drafters" if leg.get("together") else "")
            cells += [texts, tokens, f"{leg['steps']:,}", f"{leg['batch_tokens']:,}", str(leg["minutes"])]
            cells += [str(leg["muon_rate"]), str(leg["adam_rate"])]
        else:
            cells += ["not recorded"] + [""] * (len(HEADINGS) - 2)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
