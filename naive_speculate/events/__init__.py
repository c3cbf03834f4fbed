"""What a run tells the world: events, their traces, and figures computed from them."""

from naive_speculate.events.event import (
    OUTPUT_KINDS,
    SCHEMA_VERSION,
    TOKEN_KINDS,
    Event,
    EventKind,
    FinishReason,
    Logprob,
    MeasuredSpeedup,
    TokenProb,
    TopTokens,
)
from naive_speculate.events.expected import ExpectedAcceptance, expected_acceptance

__all__ = [
    "OUTPUT_KINDS",
    "SCHEMA_VERSION",
    "TOKEN_KINDS",
    "Event",
    "EventKind",
    "ExpectedAcceptance",
    "FinishReason",
    "Logprob",
    "MeasuredSpeedup",
    "TokenProb",
    "TopTokens",
    "expected_acceptance",
]
