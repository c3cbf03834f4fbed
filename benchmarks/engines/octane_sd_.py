# /// script
# dependencies = ["octane-sd==0.1.0", "torch==2.13.0", "transformers==5.23.0"]
# ///
"""octane-sd: It drafts nothing yet."""

from serve import Engine, serve

ENGINE = Engine(
    packages=["octane-sd"],
    ways=[],
    rule="Its server and its decoder are not written yet: octane serve ends with an error.",
    source="octane/cli.py",
)

serve(ENGINE)
