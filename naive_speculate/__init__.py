"""Visible speculative decoding: lossless, readable, and recorded event by event.

Public names are imported on first use, so that a command can be interrupted while its libraries
load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from naive_speculate.events import Event, EventKind
    from naive_speculate.events.trace import Trace
    from naive_speculate.guides.guided import GuidedDecodingParams
    from naive_speculate.models import ModelPair, load_pair
    from naive_speculate.sampling.params import SamplingParams
    from naive_speculate.sampling.strategy import SampleStrategy
    from naive_speculate.speculate.decoder import SpeculativeDecoder
    from naive_speculate.speculate.run import GenerationResult
    from naive_speculate.speculate.verify import VerifyStrategy
    from naive_speculate.tools.differ import differ
    from naive_speculate.tools.watch import watch

__version__ = "0.3.0"

__all__ = [
    "Event",
    "EventKind",
    "GenerationResult",
    "GuidedDecodingParams",
    "ModelPair",
    "SampleStrategy",
    "SamplingParams",
    "SpeculativeDecoder",
    "Trace",
    "VerifyStrategy",
    "differ",
    "load_pair",
    "watch",
]

_MODULES = {
    "Event": "events",
    "EventKind": "events",
    "GenerationResult": "speculate.run",
    "GuidedDecodingParams": "guides.guided",
    "ModelPair": "models",
    "SampleStrategy": "sampling.strategy",
    "SamplingParams": "sampling.params",
    "SpeculativeDecoder": "speculate.decoder",
    "Trace": "events.trace",
    "VerifyStrategy": "speculate.verify",
    "differ": "tools.differ",
    "load_pair": "models",
    "watch": "tools.watch",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
