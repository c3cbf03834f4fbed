"""An engine that reports its runs is an engine: it does what its engine does."""

import pytest

from naive_speculate.serving import LocalEngine
from naive_speculate.serving.run_records import ObservedEngine
from tests.serving.contract import EngineContract


@pytest.fixture
def engine(patient_decoder):
    made = ObservedEngine(LocalEngine(patient_decoder, max_rows=4), [lambda record: None])
    yield made
    made.close()


class TestObservedEngine(EngineContract):
    pass
