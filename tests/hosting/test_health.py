"""`/health` over HTTP while a guide is being parsed, and while a step does not end."""

import json
import threading
from collections.abc import Iterator
from dataclasses import astuple, replace

import pytest

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.serving import LocalEngine, Request
from tests.hosting.http import get, post, served
from tests.tiny import tiny_llama
from ui.host.catalog import Catalog, ServedPair
from ui.run import settings as settings_module
from ui.run.recorded import START


class Halting(TransformersLanguageModel):
    """A model whose forward waits as long as the test wants."""

    def __init__(self) -> None:
        super().__init__(tiny_llama(1, seed=0))
        self.halted, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()

    def forward(self, *args, **kwargs):
        if not self.goes_on.is_set():
            self.halted.set()
            self.goes_on.wait(120)
        return super().forward(*args, **kwargs)


@pytest.fixture(scope="module")
def model() -> Halting:
    return Halting()


@pytest.fixture(scope="module")
def engine(model) -> Iterator[LocalEngine]:
    yield LocalEngine(SpeculativeDecoder(ModelPair(model)), max_rows=2)
    model.goes_on.set()


@pytest.fixture(scope="module")
def page(engine):
    with served(Catalog({"one": ServedPair(engine, engine)}, measuring=False)) as page:
        yield page


def test_health_is_503_while_a_step_does_not_end(page, model, engine, monkeypatch):
    monkeypatch.setattr("naive_speculate.serving.local.STUCK_SECONDS", 0.0)
    assert json.loads(get(f"{page.local_url}health"))["ready"]
    model.goes_on.clear()
    over = threading.Event()
    request = Request([1, 2], SamplingParams(max_tokens=2), num_draft_tokens=0)
    engine.start(request, threading.Event(), lambda said: over.set() if said is None else None)
    assert model.halted.wait(60)
    status, answer = post(f"{page.local_url}health", None)  # a GET
    said = json.loads(answer)
    assert (status, said["ready"], said["stuck"]) == (503, False, True)
    assert said["reason"].startswith("The decoder has made no progress for")
    model.goes_on.set()
    assert over.wait(60)
    assert json.loads(get(f"{page.local_url}health"))["ready"]


def test_health_answers_while_a_guide_is_being_parsed(page, monkeypatch):
    """The guide is parsed only once `/health` has answered."""
    begun, answered, parsed = threading.Event(), threading.Event(), threading.Event()
    guide = settings_module.guide

    def held(kind: str, text: str):
        begun.set()
        assert answered.wait(120)
        made = guide(kind, text)
        parsed.set()
        return made

    monkeypatch.setattr(settings_module, "guide", held)
    (function,) = [number for number, made in page.fns.items() if made.name == "_decode"][:1]
    fields = {f"f{n}": {"type": "number", "minimum": -n - 0.125} for n in range(300)}
    large = json.dumps({"type": "object", "properties": fields})
    values = astuple(replace(START, guided="json", guided_text=large))
    body = {"data": values, "fn_index": function, "session_hash": "visitor"}
    assert post(f"{page.local_url}gradio_api/queue/join", body)[0] == 200
    assert begun.wait(60)
    assert json.loads(get(f"{page.local_url}health"))["ready"]
    assert not parsed.is_set()
    answered.set()
    assert parsed.wait(60)
