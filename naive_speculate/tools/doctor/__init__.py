"""Diagnoses an engine's speculative decoding from its logs and metrics: `python -m
naive_speculate doctor FILE…`."""

from naive_speculate.tools.doctor.diagnosis import Diagnosis, Suspect, Window, estimated, given
from naive_speculate.tools.doctor.formats import read
from naive_speculate.tools.doctor.reading import Reading
from naive_speculate.tools.doctor.suspects import diagnose

__all__ = ["Diagnosis", "Reading", "Suspect", "Window", "diagnose", "estimated", "given", "read"]
