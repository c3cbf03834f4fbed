# /// script
# dependencies = ["mistralrs==0.9.5"]
# ///
"""mistralrs: it has no draft models. With an MTP assistant on a CPU its runner says
"MTP speculative decoding currently requires PagedAttention for this pipeline"."""

from serve import Engine, serve

ENGINE = Engine(
    packages=["mistralrs"],
    ways=[],
    rule="It takes no draft model, and its MTP assistants need paged attention, so a GPU.",
    source="mistralrs/__init__.pyi:704, Runner(mtp_model, …)",
)

serve(ENGINE)
