# /// script
# dependencies = ["drafters==0.0.1"]
# ///
"""drafters: It has nothing to judge drafts with."""

from collections.abc import Callable

from serve import Answer, Ask, Engine, serve

ENGINE = Engine(
    packages=["drafters"],
    ways=[],
    rule="An interface for drafters: it has no decoder and no acceptance rule.",
    source="drafters/__init__.py",
)


def load(folder: str) -> Callable[[Ask], Answer]:
    def draw(ask: Ask) -> Answer:
        raise NotImplementedError(ENGINE.rule)

    return draw


serve(ENGINE, load)
