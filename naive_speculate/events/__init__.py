"""Events of a run, their traces, and figures computed from them."""

from naive_speculate.events.event import (
    OUTPUT_KINDS,
    TOKEN_KINDS,
    Event,
    EventKind,
    FinishReason,
    Logprob,
    MeasuredSpeedup,
    TokenProb,
)

__all__ = [
    "OUTPUT_KINDS",
    "TOKEN_KINDS",
    "Event",
    "EventKind",
    "FinishReason",
    "Logprob",
    "MeasuredSpeedup",
    "TokenProb",
]
