"""Speculative decoding that can be seen: lossless, readable, and told event by event."""

from naive_speculate.events import Event, EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.models import ModelPair, load_pair
from naive_speculate.sampling.guided import GuidedDecodingParams
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.sampling.strategy import SampleStrategy
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.result import GenerationResult
from naive_speculate.speculate.verify import VerifyStrategy

__version__ = "0.1.0"

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
    "load_pair",
]
