"""Which verdicts of a new trial differ from those before it."""

from typing import Any


def biased(verdict: dict[str, Any]) -> bool:
    """Whether both sets of seeds say so."""
    return bool(verdict["biased"] and verdict["again"]["biased"])


def verdicts(result: dict[str, Any]) -> dict[str, str]:
    """What a result says, in a word per cell of the report's table."""
    cells = {}
    for part, name in (("greedy", "greedy"), ("greedy_penalty", "greedy with a penalty")):
        for way, own in result.get(part, {}).items():
            same = own["equal"] == own["texts"]
            cells[f"{way}, {name}"] = "equal" if same else "changed"
    for setting, ways in result.get("sampled", {}).items():
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
