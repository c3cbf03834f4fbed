"""Speculative decoding: draft, score, verify, roll back, emit."""
