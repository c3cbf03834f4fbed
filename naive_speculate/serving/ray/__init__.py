"""Replicas of a pair on Ray Serve, as an `Engine`."""
