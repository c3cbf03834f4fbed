# /// script
# dependencies = ["drafters==0.0.1"]
# ///
"""drafters: It has nothing to judge drafts with."""

from serve import Engine, serve

ENGINE = Engine(
    packages=["drafters"],
    ways=[],
    rule="An interface for drafters: it has no decoder and no acceptance rule.",
    source="drafters/__init__.py",
)

serve(ENGINE)
