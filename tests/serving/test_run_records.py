"""An engine that is observed does what it does unobserved."""

import pytest

from naive_speculate.serving import LocalEngine
from naive_speculate.serving.run_records import ObservedEngine
from tests.serving import test_local
from tests.serving.contract import EngineContract

all_free = test_local.all_free
alone_decoder = test_local.alone_decoder


@pytest.fixture
def engine(patient_decoder):
    made = ObservedEngine(LocalEngine(patient_decoder, max_rows=4), [lambda record: None])
    yield made
    made.close()


class TestObservedEngine(EngineContract):
    pass
