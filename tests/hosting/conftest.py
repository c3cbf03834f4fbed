"""The real server, started as a host would start it."""

from collections.abc import Iterator

import pytest

from benchmarks.server import ROOT, Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """With two pairs, and as an MCP server too."""
    folder = ROOT / "assets" / "pair"
    environment = {
        "NAIVE_SPECULATE_PAIRS": f"bundled; Other = {folder / 'target'} + {folder / 'draft'}",
        "NAIVE_SPECULATE_MAX_TOKENS": "64",
    }
    with Server("--mcp", **environment) as running:
        yield running
    assert running.process.returncode in (0, -15)
