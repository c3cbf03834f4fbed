"""The worked examples of CONTRIBUTING.md run as they stand there."""

import re
from pathlib import Path

import pytest

from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.verify import VERIFIERS

TEXT = (Path(__file__).resolve().parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.fixture
def registries():
    before = dict(DRAFTERS), dict(VERIFIERS)
    yield DRAFTERS, VERIFIERS
    for registry, kept in zip((DRAFTERS, VERIFIERS), before, strict=True):
        registry.clear()
        registry.update(kept)


def test_the_examples_run(registries):
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
    assert len(blocks) == 4
    exec(compile("\n".join(blocks), "CONTRIBUTING.md", "exec"), {})
    assert "repeat" in registries[0]
    assert "half" in registries[1]
