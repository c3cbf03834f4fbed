"""The models here are tiny: one thread computes them fastest, above all where several test
processes share the cores."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("NAIVE_SPECULATE_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the programs that tests start, too
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched in tests

# and nothing that takes seconds: the process that hands out the tests has no need of it
import pytest
from hypothesis import HealthCheck, settings

import naive_speculate
from ui.host.process import quick_imports

# a machine may be too slow for limits of time
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
PROGRAMS = (
    "tests/hosting/",
    "tests/tools/prove/test_prove_command.py",
    "tests/tools/test_command_line.py",
)
PARTS = {
    "browser": "tests/browser/",
    "ray": "tests/serving/test_replicas.py",
    "training": "tests/train/",
    "install": "tests/test_versions.py::test_the_wheel",
    "server": "tests/hosting/",
}
"""Where the tests are that `make check` leaves out, by the marker that they get; of those in
hosting, the users of `server`."""
COLLECTED = pytest.StashKey[list[pytest.Item]]()
TAKE_LONG = (
    "tests/test_versions.py",  # which waits for the network while others compute
    "tests/serving/test_replicas.py",
    *PROGRAMS,
    "tests/browser/",
    "tests/train/",
    "tests/speculate/",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-throttling",
        type=float,
        default=1.0,
        metavar="RATE",
        help="browser tests: Chromium computes RATE times slower",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    gc.disable()  # what is imported stays
    try:
        with quick_imports(
            mcp=False
        ):  # which takes a second; the tests that call a server over it import it themselves
            return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(50_000, 20, 100)


@pytest.hookimpl(tryfirst=True)  # before any test is deselected by its markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks every test with its part. What takes long begins first, so that at the end no
    process has to wait for another."""
    for item in items:
        uses = getattr(item, "fixturenames", ())
        for name, place in PARTS.items():
            if item.nodeid.startswith(place) and (name != "server" or "server" in uses):
                item.add_marker(name)
    config.stash[COLLECTED] = list(items)
    items.sort(key=lambda item: [not item.nodeid.startswith(place) for place in TAKE_LONG])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process runs the tests of a file, and one those of the programs, which share a server
    and what is loaded already."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "programs" if nodeid.startswith(PROGRAMS) else nodeid.split("::")[0]

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup() -> None:
    seed()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call() -> Iterator[None]:
    """Ctrl-C ends pytest as before, also after a test of a program that ends at once by it."""
    seed()
    handler = signal.getsignal(signal.SIGINT)
    try:
        return (yield)
    finally:
        signal.signal(signal.SIGINT, handler)


def seed() -> None:
    """So that what fixtures and tests draw from torch's own generator does not depend on the tests
    before them."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """All tests of this run, those included that their markers keep from running."""
    return request.config.stash[COLLECTED]


@pytest.fixture(scope="session")
def bundled_pair() -> "naive_speculate.ModelPair":
    return naive_speculate.load_pair(device="cpu")


@pytest.fixture(scope="session")
def bundled_decoder(bundled_pair) -> "naive_speculate.SpeculativeDecoder":
    return naive_speculate.SpeculativeDecoder(bundled_pair)


@pytest.fixture(scope="session")
def small_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of the bundled draft model as a target, and of itself with a little noise as
    its draft: real text, some drafts kept and some not, at a fraction of the bundled target's
    cost."""
    from naive_speculate.pair import BUNDLED_PAIR
    from tests.tiny import save_noisy

    folder = tmp_path_factory.mktemp("noisy")
    save_noisy(BUNDLED_PAIR / "draft", folder)
    return BUNDLED_PAIR / "draft", folder


@pytest.fixture(scope="session")
def small_decoder(small_pair) -> "naive_speculate.SpeculativeDecoder":
    return naive_speculate.SpeculativeDecoder(naive_speculate.load_pair(*small_pair, device="cpu"))


@pytest.fixture(scope="session")
def bundled_engine(bundled_decoder) -> Iterator[Any]:
    yield from engine_of(bundled_decoder)


@pytest.fixture(scope="session")
def small_engine(small_decoder) -> Iterator[Any]:
    yield from engine_of(small_decoder)


@pytest.fixture(scope="session")
def tiny_pair() -> "naive_speculate.ModelPair":
    from tests.tiny import noisy_pair

    return noisy_pair()


@pytest.fixture(scope="session")
def tiny_decoder(tiny_pair) -> "naive_speculate.SpeculativeDecoder":
    return naive_speculate.SpeculativeDecoder(tiny_pair)


@pytest.fixture(scope="session")
def tiny_engine(tiny_decoder) -> Iterator[Any]:
    yield from engine_of(tiny_decoder)


def engine_of(decoder: "naive_speculate.SpeculativeDecoder") -> Iterator[Any]:
    from naive_speculate.serving import LocalEngine

    engine = LocalEngine(decoder)
    yield engine
    engine.close()
