"""A pair's target once more, in float32 and in half precision on the CPU, for comparisons of rounding."""

from functools import lru_cache
from pathlib import Path
from threading import Lock

from naive_speculate.differing import Scores
from naive_speculate.models import BUNDLED_PAIR, load_pair
from ui.host.catalog import Catalog

HALF = "bfloat16"
MOST_PARAMETERS = 1_000_000_000  # of a target that is loaded twice more: 6 GB for a billion
_loading = Lock()


def scores_of(catalog: Catalog, pair: str) -> tuple[Scores, Scores]:
    """Both copies of a pair's target; those of the last pair stay loaded. Raises ValueError if there is no such pair, or its
    target is too large, or cannot be loaded once more."""
    served = catalog.of(pair)
    if served.engine.about.num_parameters.get("target", 0) > MOST_PARAMETERS:
        raise ValueError("the target is too large to be loaded twice more: use python -m naive_speculate differ")
    if served.target is None and not served.is_tales:
        raise ValueError("the page does not know where this pair's target was loaded from")
    with _loading:
        return _load(served.target or BUNDLED_PAIR / "target")


@lru_cache(maxsize=1)
def _load(target: str | Path) -> tuple[Scores, Scores]:
    full, half = (Scores(load_pair(target, device="cpu", dtype=dtype), dtype) for dtype in ("float32", HALF))
    return full, half
