"""Trains drafters for any target: `data.py`, then `head.py` or `model.py` in `loop.py`, then
`export.py`."""
