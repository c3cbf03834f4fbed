"""The pair of a page, in this process."""

from typing import Any

import pytest


@pytest.fixture(scope="package")
def catalog(small_engine, small_pair) -> Any:
    """A small pair, which can be measured."""
    from ui.host.catalog import Catalog, ServedPair

    return Catalog({"small": ServedPair(small_engine, measurable=True, target=str(small_pair[0]))})
