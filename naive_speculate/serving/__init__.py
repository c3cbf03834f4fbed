"""Many requests at once: the protocol that the page speaks, and what answers it."""

from naive_speculate.serving.local import LocalEngine
from naive_speculate.serving.protocol import About, Engine, Load, Request, Unavailable
from naive_speculate.serving.solo import SoloEngine

__all__ = ["About", "Engine", "Load", "LocalEngine", "Request", "SoloEngine", "Unavailable"]
