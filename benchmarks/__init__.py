"""The measurements of the README's numbers."""
