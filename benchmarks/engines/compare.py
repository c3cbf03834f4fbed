"""Which verdicts of a new trial differ from those before it."""

from typing import Any


def biased(verdict: dict[str, Any]) -> bool:
    """Whether both sets of seeds say so."""
    return bool(verdict["biased"] and verdict["again"]["biased"])


def verdicts(result: dict[str, Any]) -> dict[str, str]:
    """What a result says, in a word per cell of the report's table."""
    if "failed" in result:
        return {"trial": result["failed"]}
    found = {}
    for part, name in (("greedy", "greedy"), ("greedy_penalty", "greedy with a penalty")):
        for way, own in result.get(part, {}).items():
            same = own["equal"] == own["texts"]
            found[f"{way}, {name}"] = "equal" if same else "changed"
    for setting, ways in result.get("sampled", {}).items():
        for way, verdict in ways.items():
            found[f"{way}, {setting}"] = "biased" if biased(verdict) else "right"
    return found


def compared(name: str, before: dict[str, Any], after: dict[str, Any]) -> tuple[str, bool]:
    """A line for an engine, and whether a verdict that was there before is now another one, or
    is missing."""
    old, new = verdicts(before), verdicts(after)
    changes = [
        f"{cell}: {said} before, {new.get(cell, 'not tried')} now"
        for cell, said in old.items()
        if new.get(cell) != said
    ]
    if changes:
        return f"{name}: {'; '.join(changes)}", True
    if "failed" in after:
        return f"{name}: could not be tried, as before: {after['failed']}", False
    said = (
        [f"{len(old)} verdicts as before"]
        if old
        else ["nothing to judge, as before"] * bool(before)
    )
    said += [f"new: {cell}: {word}" for cell, word in new.items() if cell not in old]
    return f"{name}: {'; '.join(said)}", False
