"""The page in this process, so that a test can hold up what it serves."""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.server import free_port
from ui.host.catalog import Catalog
from ui.host.operations import Counters, routes, with_queue
from ui.page import build_page, launch, open_queue
from ui.run.runs import Runs


@contextmanager
def served_here(catalog: Catalog) -> Iterator[str]:
    """Serve the page with these pairs, and close them afterwards; gives its address."""
    page = build_page(catalog, Runs())
    open_queue(page, 4)
    addresses = routes(Counters(lambda: with_queue(catalog.load(), page)))
    yield launch(page, addresses, server_port=free_port(), prevent_thread_lock=True, quiet=True)
    page.close(verbose=False)
    catalog.close()
