"""Ray is started once for all tests that need it, with two replicas of a tiny pair."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.serving import Engine, Request
from naive_speculate.serving.ray import cluster as ray_cluster
from naive_speculate.serving.ray.app import DecoderArgs
from tests.tiny import save_model, tiny_llama

pytest.register_assert_rewrite("tests.serving.contract")
os.environ.setdefault("SERVE_SLOW_STARTUP_WARNING_S", "300")  # else a replica that a busy machine starts slowly seems stuck
APP = "tiny"


@pytest.fixture(scope="session")
def saved_pair(tmp_path_factory) -> Path:
    """A tiny pair in folders, as replicas load it; its sequences may go on for as long as a test wants."""
    folder = tmp_path_factory.mktemp("pair")
    target, draft = (tiny_llama(1, seed=0, positions=2 * 10**6) for _ in range(2))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter += 0.03 * torch.randn(parameter.shape, generator=generator)
    for name, model in (("target", target), ("draft", draft)):
        save_model(model, folder / name)
    return folder


@pytest.fixture(scope="session")
def saved_decoder(saved_pair) -> SpeculativeDecoder:
    """The same pair in this process."""
    return SpeculativeDecoder(load_pair(saved_pair / "target", saved_pair / "draft"))


@pytest.fixture(scope="session")
def patient_decoder(saved_pair) -> SpeculativeDecoder:
    """The same again, without threads that a forked process would miss."""
    return SpeculativeDecoder(load_pair(saved_pair / "target", saved_pair / "draft", executor="torch"))


@pytest.fixture
def alone_decoder(patient_decoder) -> SpeculativeDecoder:
    return patient_decoder


@pytest.fixture
def all_free() -> Callable[[Engine], bool]:
    def free(engine: Engine) -> bool:
        """A run that wants all places begins once all are free."""
        list(engine.submit(Request([1], SamplingParams(n=engine.load().capacity, max_tokens=1))))
        return engine.load().running == 0

    return free


@pytest.fixture(scope="session")
def ray_args(saved_pair) -> DecoderArgs:
    return DecoderArgs(
        target=str(saved_pair / "target"),
        draft=str(saved_pair / "draft"),
        max_rows=4,
        min_replicas=2,
        max_replicas=2,
        drain_seconds=30,
    )


@pytest.fixture(scope="session")
def cluster(ray_args) -> Iterator[ray_cluster.Cluster]:
    made = started({APP: ray_args})
    made.join()
    ray_cluster.wait_until_ready(APP, 300)
    yield made
    made.leave()


def started(applications: dict[str, DecoderArgs], tries: int = 4) -> ray_cluster.Cluster:
    """Ray gives its own processes half a minute to begin, which cannot be changed; a busy machine may need more."""
    try:
        return ray_cluster.start(applications, num_cpus=2, object_store_memory=100 * 2**20)
    except ray_cluster.ClusterError as error:
        if tries == 1 or "timed out during startup" not in str(error):
            raise
    return started(applications, tries - 1)
