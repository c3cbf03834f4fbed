"""A tiny corpus, made here, and the arguments of a tiny run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from train import card
from train.stories import tell


@pytest.fixture(scope="session", autouse=True)
def short_samples() -> Iterator[None]:
    """Model cards quote a few words of each sample, not many sentences."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(card, "SAMPLE_TOKENS", 12)
        yield


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    texts = [tell(seed) for seed in range(40)]
    (folder / "one.txt").write_text("\n<|endoftext|>\n".join(texts), encoding="utf-8")
    return folder
