"""Drafters of other libraries: block, chain and parallel drafters, multi-token prediction layers,
assistants."""
