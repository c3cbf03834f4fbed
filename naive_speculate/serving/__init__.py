"""Decodes many requests at once: the engine interface and its implementations."""

from naive_speculate.serving.local import Later, LocalEngine
from naive_speculate.serving.protocol import About, Engine, Load, Request, Unavailable
from naive_speculate.serving.solo import SoloEngine

__all__ = [
    "About",
    "Engine",
    "Later",
    "Load",
    "LocalEngine",
    "Request",
    "SoloEngine",
    "Unavailable",
]
