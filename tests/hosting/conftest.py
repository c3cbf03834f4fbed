"""The real server, started as a host would start it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.server import ROOT, Server


@pytest.fixture(scope="package")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server would keep files."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="package")
def server(cache: Path) -> Iterator[Server]:
    """With two pairs, and as an MCP server too."""
    folder = ROOT / "assets" / "pair"
    environment = {
        "NAIVE_SPECULATE_PAIRS": f"bundled; Other = {folder / 'target'} + {folder / 'draft'}",
        "NAIVE_SPECULATE_MAX_TOKENS": "64",
        "GRADIO_TEMP_DIR": str(cache),
        "TMPDIR": str(cache),
    }
    with Server("--mcp", **environment) as running:
        yield running
    assert running.process.returncode in (0, -15)


@pytest.fixture(scope="package")
def own_server() -> Iterator[Server]:
    """With the bundled pair alone and nothing else: tests read its log, and decode as much as they want."""
    with Server(NAIVE_SPECULATE_MEASURING="off") as running:
        running.wait_for("public link", 300)  # what Gradio prints last
        yield running
