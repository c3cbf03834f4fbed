"""Checkpoints: written whole or not at all, the last two kept, never replaced by a run of another configuration."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from train.errors import TrainingError

KEEP = 2


def differences(stored: dict[str, Any], wanted: dict[str, Any], prefix: str = "") -> list[str]:
    """What differs between two nested settings, as ``target.layers: 6 there, 8 here``."""
    found: list[str] = []
    for key in sorted(stored.keys() | wanted.keys()):
        there, here = stored.get(key), wanted.get(key)
        if isinstance(there, dict) and isinstance(here, dict):
            found += differences(there, here, f"{prefix}{key}.")
        elif there != here:
            found.append(f"{prefix}{key}: {there} there, {here} here")
    return found


@dataclass(frozen=True)
class CheckpointFolder:
    """The checkpoints of one model, ``NAME-STEP.pt``, in a folder."""

    folder: Path
    name: str
    settings: dict[str, Any]

    def steps(self) -> list[Path]:
        """Numbered checkpoints, oldest first."""
        return sorted(self.folder.glob(f"{self.name}-[0-9]*.pt"))

    def write(self, state: dict[str, Any], path: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        torch.save({"settings": self.settings, **state}, partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)

    def save(self, state: dict[str, Any], step: int) -> Path:
        path = self.folder / f"{self.name}-{step:07d}.pt"
        self.write(state, path)
        for old in self.steps()[:-KEEP]:
            old.unlink()
        return path

    def load(self, path: Path) -> dict[str, Any]:
        """The state in ``path``; raises ``TrainingError`` when it is damaged or of another configuration."""
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            stored = state.pop("settings")
        except Exception as error:
            raise TrainingError(f"unreadable checkpoint: {path} ({type(error).__name__})") from error
        found = differences(stored, self.settings)
        if found:
            raise TrainingError(f"checkpoint of another configuration: {path} ({'; '.join(found)})")
        return state

    def latest(self) -> dict[str, Any] | None:
        """The newest readable state, or None when there is none at all.

        A damaged newest checkpoint falls back to the one before it.
        """
        paths = self.steps()
        for path in reversed(paths):
            try:
                return self.load(path)
            except TrainingError as error:
                if "unreadable" not in str(error) or path == paths[0]:
                    raise
        return None
