"""The models here are tiny: one thread computes them fastest, above all where several test processes share the cores."""

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("NAIVE_SPECULATE_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the programs that tests start, too
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched in tests

import pytest
import torch
from hypothesis import HealthCheck, settings
from transformers import AutoModelForCausalLM, AutoTokenizer

from naive_speculate import ModelPair, SpeculativeDecoder, load_pair
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.models import BUNDLED_PAIR
from naive_speculate.serving import LocalEngine
from tests.tiny import tiny_llama

torch.set_num_threads(1)
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a machine may be
settings.load_profile("busy")
PROGRAMS = (
    "tests/hosting/",
    "tests/testing/test_prove_command.py",
    "tests/test_command_line.py",
    "tests/test_interruptions.py",
)
TAKE_LONG = ("tests/serving/test_replicas.py", *PROGRAMS, "tests/browser/", "tests/train/", "tests/speculate/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that at the end no process has to wait for another."""
    items.sort(key=lambda item: [not item.nodeid.startswith(place) for place in TAKE_LONG])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process runs the tests of a file, and one all those of programs, which share a server and what is loaded already."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "programs" if nodeid.startswith(PROGRAMS) else nodeid.split("::")[0]

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def bundled_pair() -> ModelPair:
    return load_pair()


@pytest.fixture(scope="session")
def bundled_decoder(bundled_pair) -> SpeculativeDecoder:
    return SpeculativeDecoder(bundled_pair)


@pytest.fixture(scope="session")
def small_decoder(tmp_path_factory: pytest.TempPathFactory) -> SpeculativeDecoder:
    """The bundled draft model as a target, drafted for by itself with a little noise: real text, some drafts kept and some not,
    at a fraction of the bundled target's cost."""
    folder = tmp_path_factory.mktemp("noisy")
    noisy = AutoModelForCausalLM.from_pretrained(BUNDLED_PAIR / "draft", dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in noisy.parameters():
            parameter += 0.1 * parameter.std() * torch.randn(parameter.shape, generator=generator)
    noisy.save_pretrained(folder)
    AutoTokenizer.from_pretrained(BUNDLED_PAIR / "draft").save_pretrained(folder)
    return SpeculativeDecoder(load_pair(BUNDLED_PAIR / "draft", folder, device="cpu"))


@pytest.fixture(scope="session")
def bundled_engine(bundled_decoder) -> Iterator[LocalEngine]:
    engine = LocalEngine(bundled_decoder)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def tiny_pair() -> ModelPair:
    """A random target, and a draft that is the target with a little noise, so that some drafts are kept and some not."""
    target, draft = tiny_llama(2, seed=0), tiny_llama(2, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter += 0.03 * torch.randn(parameter.shape, generator=generator)
    return ModelPair(TransformersLanguageModel(target), TransformersLanguageModel(draft))


@pytest.fixture(scope="session")
def tiny_decoder(tiny_pair) -> SpeculativeDecoder:
    return SpeculativeDecoder(tiny_pair)


@pytest.fixture(scope="session")
def tiny_engine(tiny_decoder) -> Iterator[LocalEngine]:
    engine = LocalEngine(tiny_decoder)
    yield engine
    engine.close()
