"""The worked examples of CONTRIBUTING.md run as they stand there."""

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import naive_speculate
from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.verify import VERIFIERS
from naive_speculate.testing import ToyModel

TEXT = (Path(__file__).resolve().parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.fixture
def registries():
    before = dict(DRAFTERS), dict(VERIFIERS)
    yield DRAFTERS, VERIFIERS
    for registry, kept in zip((DRAFTERS, VERIFIERS), before, strict=True):
        registry.clear()
        registry.update(kept)


def test_the_examples_run(registries, bundled_pair, monkeypatch):
    monkeypatch.setattr(naive_speculate, "load_pair", lambda: bundled_pair)
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
    assert len(blocks) == 4
    exec(compile("\n".join(blocks), "CONTRIBUTING.md", "exec"), {})
    assert "repeat" in registries[0]
    assert "half" in registries[1]


def test_a_greedy_step_passes_through_the_listed_files_which_are_15_at_most():
    section = TEXT.split("## The files of one greedy step")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\S+\.py)` \|", section, flags=re.M)
    assert 10 < len(listed) <= 15
    decoder = SpeculativeDecoder(ModelPair(ToyModel(7, 1), ToyModel(7, 2)))
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        decoder.generate(
            [1, 2], SamplingParams(max_tokens=8, temperature=0), num_draft_tokens=3, detail="none"
        )
    finally:
        sys.setprofile(None)
    package = Path(naive_speculate.__file__).parent
    assert {str(package / name) for name in listed} <= entered
