"""Which verdicts of a new trial differ from those before it."""

from typing import Any

from benchmarks.engines.options import verdict_of

NEAR, FULL = "T = 1, a near draft", "T = 1, the target as draft"
COPIES = ("plain", "prompt lookup", "tree of recycled tokens")  # ways without a draft model


def biased(verdict: dict[str, Any]) -> bool:
    """Whether both sets of seeds say so."""
    return bool(verdict["biased"] and verdict["again"]["biased"])


def whole(full: dict[str, int]) -> bool:
    """Whether steps whose draft tokens are all accepted emit one more; the pass over the prompt may
    be one without draft tokens."""
    return full["passes"] <= full["least"] + 1


def all_sampled(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The verdicts about samples, by setting and way."""
    more = {NEAR: result.get("near_sampled"), FULL: result.get("full_sampled")}
    return result.get("sampled", {}) | {name: own for name, own in more.items() if own}


def verdicts(result: dict[str, Any]) -> dict[str, str]:
    """What a result says, in a word per cell of the report's table."""
    cells = {}
    for part, name in (("greedy", "greedy"), ("greedy_penalty", "greedy with a penalty")):
        for way, own in result.get(part, {}).items():
            same = own["equal"] == own["texts"]
            cells[f"{way}, {name}"] = "equal" if same else "changed"
    for name, ways in result.get("options", {}).items():
        cells |= {f"{way}, {name}": verdict_of(own) for way, own in ways.items()}
    for way, own in result.get("full", {}).items():
        cells[f"{way}, all accepted"] = "a token more" if whole(own) else "no token more"
    for setting, ways in all_sampled(result).items():
        for way, verdict in ways.items():
            cells[f"{way}, {setting}"] = "biased" if biased(verdict) else "right"
    return cells


def compared(name: str, before: dict[str, Any], after: dict[str, Any]) -> tuple[str, bool]:
    """A line for an engine, and whether it says something else than before, or could not be tried
    this time."""
    if "failed" in after:
        same = before.get("failed") == after["failed"]
        return f"{name}: could not be tried: {after['failed']}{' (as before)' * same}", not same
    old, new = verdicts(before), verdicts(after)
    changes = [
        f"{cell}: {old[cell]} before, {new.get(cell, 'not tried')} now"
        for cell in old
        if new.get(cell) != old[cell]
    ]
    fresh = [f"{cell}: {said} (new)" for cell, said in new.items() if cell not in old]
    same = f"{len(old) - len(changes)} verdicts as before"
    return f"{name}: {'; '.join([same, *changes, *fresh])}", bool(changes)
