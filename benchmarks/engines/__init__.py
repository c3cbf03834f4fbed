"""Engines on trial: adapters, the trial, and the report. `python -m benchmarks.engines --help`."""
