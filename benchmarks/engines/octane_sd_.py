# /// script
# dependencies = ["octane-sd==0.1.0", "torch==2.13.0", "transformers==5.23.0"]
# ///
"""octane-sd: It drafts nothing yet."""

from collections.abc import Callable

from serve import Answer, Ask, Engine, serve

ENGINE = Engine(
    packages=["octane-sd"],
    ways=[],
    rule="A stub: octane serve ends with NotImplementedError.",
    source="octane/cli.py",
)


def load(folder: str) -> Callable[[Ask], Answer]:
    def draw(ask: Ask) -> Answer:
        raise NotImplementedError(ENGINE.rule)

    return draw


serve(ENGINE, load)
