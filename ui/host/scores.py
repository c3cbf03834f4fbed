"""A pair's target once more, in float32 and in half precision on the CPU, for comparisons of rounding."""

from functools import lru_cache
from pathlib import Path
from threading import Lock

from naive_speculate.differing import Scores
from naive_speculate.models import BUNDLED_PAIR, load_pair
from ui.host.catalog import Catalog

HALF = "bfloat16"
_loading = Lock()


def scores_of(catalog: Catalog, pair: str) -> tuple[Scores, Scores]:
    """Both copies of a pair's target; those of the last pair stay loaded.

    Raises:
        ValueError: If there is no such pair, or its target cannot be loaded once more.
    """
    with _loading:
        return _load(catalog.of(pair).target or BUNDLED_PAIR / "target")


@lru_cache(maxsize=1)
def _load(target: str | Path) -> tuple[Scores, Scores]:
    full, half = (Scores(load_pair(target, device="cpu", dtype=dtype)) for dtype in ("float32", HALF))
    return full, half
