"""A tiny pair whose sequences go on for as long as a test wants, and decoders of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.serving import Engine, LocalEngine, Request
from tests.tiny import noised, save_model, tiny_llama

pytest.register_assert_rewrite("tests.serving.contract")


@pytest.fixture(scope="session")
def saved_pair(tmp_path_factory) -> Path:
    """A tiny pair in folders, as replicas load it; its sequences may go on for as long as a test
    wants."""
    folder = tmp_path_factory.mktemp("pair")
    target, draft = (tiny_llama(1, seed=0, positions=2 * 10**6) for _ in range(2))
    save_model(target, folder / "target")
    save_model(noised(draft, 0.03), folder / "draft")
    return folder


@pytest.fixture(scope="session")
def saved_decoder(saved_pair) -> SpeculativeDecoder:
    """The same pair in this process."""
    return SpeculativeDecoder(load_pair(saved_pair / "target", saved_pair / "draft"))


@pytest.fixture(scope="session")
def patient_decoder(saved_pair) -> SpeculativeDecoder:
    """The same again, without threads that a forked process would miss."""
    return SpeculativeDecoder(
        load_pair(saved_pair / "target", saved_pair / "draft", executor="torch")
    )


@pytest.fixture
def alone_decoder(patient_decoder) -> SpeculativeDecoder:
    return patient_decoder


@pytest.fixture
def engine(request, patient_decoder) -> Iterator[LocalEngine]:
    """With as many places as the test's module says by `PLACES`; twice as many may wait."""
    places = getattr(request.module, "PLACES", 4)
    made = LocalEngine(patient_decoder, max_rows=places, max_waiting=2 * places)
    yield made
    made.close()


@pytest.fixture
def all_free() -> Callable[[Engine], bool]:
    def free(engine: Engine) -> bool:
        """A run that wants all places begins once all are free."""
        list(engine.submit(Request([1], SamplingParams(n=engine.load().capacity, max_tokens=1))))
        return engine.load().running == 0

    return free
