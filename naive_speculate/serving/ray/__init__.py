"""Replicas of a pair on Ray Serve, behind the same protocol."""
