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
    """With two pairs, a limit of tokens, and as an MCP server too. Tests read its log and its
    memory: its allocator has the default settings, which `make test` changes. Its output is in a
    code page, which lacks letters that Gradio prints. SIGTERM ends it, and nothing has to kill
    it."""
    folder = ROOT / "assets" / "pair"
    environment = {
        "NAIVE_SPECULATE_PAIRS": f"bundled; Other = {folder / 'target'} + {folder / 'draft'}",
        "NAIVE_SPECULATE_MAX_TOKENS": "2000",
        "GRADIO_TEMP_DIR": str(cache),
        "TMPDIR": str(cache),
        "PYTHONIOENCODING": "cp1252",
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "131072",
    }
    with Server("--mcp", **environment) as running:
        running.wait_for("public link")  # what Gradio prints last
        yield running
    assert running.process.returncode in (0, -15)
