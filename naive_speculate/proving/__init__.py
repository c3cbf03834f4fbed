"""Whether a server's samples have the distribution that its model states."""

from naive_speculate.proving.evidence import Finding
from naive_speculate.proving.report import Report, Status

__all__ = ["Finding", "Report", "Status"]
