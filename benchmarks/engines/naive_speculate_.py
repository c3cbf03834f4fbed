# /// script
# requires-python = ">=3.14"
# dependencies = ["naive-speculate==0.1.0"]
# ///
"""The original naive-speculate, which owns this name on PyPI and needs Python 3.14."""

from serve import Engine, serve

ENGINE = Engine(
    packages=["naive-speculate"],
    ways=[],
    rule="No adapter yet: it was never run here, for want of its Python.",
    source="naive_speculate/speculate",
)

serve(ENGINE)
