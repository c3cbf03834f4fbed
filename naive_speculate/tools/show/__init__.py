"""Runs shown to people: drawing, coloured tokens, terminal, notebook, figures to share."""
