"""What `python -m naive_speculate prove MODULE:NAME` proves."""

import os
import sys
from importlib import import_module
from operator import attrgetter
from typing import Any

from naive_speculate.speculate.draft import DRAFTERS, BatchDrafter
from naive_speculate.speculate.verify import VERIFIERS
from naive_speculate.testing.proof import prove_lossless
from naive_speculate.testing.result import Proof


def prove(name: str) -> Proof:
    """Prove a part by name: a registered verifier or drafter, or `MODULE:NAME`, importable from the current directory.

    A function is proved as a rejection sampler. Raises `ValueError` if it does not exist, or is neither.
    """
    if ":" not in name:
        if name not in VERIFIERS and name not in DRAFTERS:
            raise ValueError(f"prove takes MODULE:NAME or one of {', '.join([*VERIFIERS, *DRAFTERS])}, got {name!r:.80}")
        return prove_lossless(verifier=name) if name in VERIFIERS else prove_lossless(drafter=name)
    found = _load(name)
    if isinstance(found, BatchDrafter) or (isinstance(found, type) and issubclass(found, BatchDrafter)):
        return prove_lossless(drafter=found)
    if callable(getattr(found, "judge", None)):
        return prove_lossless(verifier=found)
    if callable(found) and not isinstance(found, type):
        return prove_lossless(rejection=found)
    known = "a verifier, which has judge(…), a drafter, which is derived from BatchDrafter"
    raise ValueError(f"{name!r:.80} must be {known}, or a function that samples by rejection")


def _load(name: str) -> Any:
    """Import `MODULE:NAME`."""
    module_name, _, attributes = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise ValueError(f"there is no module {missing!r:.80} here") from None
        raise ValueError(f"module {module_name!r} cannot be imported: {error}") from None
    except (Exception, SystemExit) as error:  # a module may fail in any way
        raise ValueError(f"module {module_name!r:.80} cannot be imported: {type(error).__name__}: {error}") from None
    try:
        return attrgetter(attributes)(found)
    except AttributeError:
        raise ValueError(f"module {module_name!r} has no {attributes!r:.80}") from None
