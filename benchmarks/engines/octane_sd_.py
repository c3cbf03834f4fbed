# /// script
# [tool.engines]
# without-dependencies = ["octane-sd==0.1.0"]
# ///
"""octane-sd: It drafts nothing yet."""

from serve import Engine, serve

ENGINE = Engine(
    packages=["octane-sd"],
    ways=[],
    rule="Its decoder is not written yet: octane serve ends with NotImplementedError.",
    source="octane/cli.py:18, main",
)

serve(ENGINE)
