# /// script
# dependencies = [
#   "onnxruntime-genai==0.18.0", "onnxruntime==1.32.0", "onnx==1.23.2", "onnx-ir==1.1.0",
#   "transformers==5.24.0", "torch==2.13.0", "numpy", "tokenizers==0.23.3",
# ]
# [tool.engines]
# npm = ["@huggingface/transformers@4.3.2"]
# ///
"""transformers.js in Node; GenAI's builder writes its models."""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import onnx
from in_node import Node, versions
from onnx_models import converted
from serve import Answer, Ask, Engine, serve

HEAD_SIZE = 32
ENGINE = Engine(
    packages=["onnxruntime-genai"],
    versions=versions("@huggingface/transformers"),
    ways=["draft model", "prompt lookup"],
    rule="It takes assistant_model and prompt_lookup_num_tokens in silence and drafts nothing: a "
    "pass per token. top_p, min_p and seed do nothing either; the package's random.seed does.",
    source="src/models/modeling_utils.js:540, _get_logits_processor",
    counts="It reports no acceptance figure.",
    options=["forbidden token", "no repeated pair", "min-p", "minimum length"],
    not_timed="It drafts nothing.",
)


def load(folder: str) -> Callable[[Ask], Answer]:
    for name in ("target", "draft"):
        own = Path(folder) / "transformers-js" / name  # in its layout, with the weights inside
        (own / "onnx").mkdir(parents=True, exist_ok=True)
        model = onnx.load(str(converted(folder, name) / "model.onnx"))
        for one in (*model.graph.input, *model.graph.output):  # it reads a symbol here as 0
            if "key" in one.name or "value" in one.name:
                one.type.tensor_type.shape.dim[3].dim_value = HEAD_SIZE
        onnx.save(model, str(own / "onnx" / "model.onnx"))
        shutil.copy(f"{folder}/{name}/config.json", own)
    node = Node("transformers_js.mjs", f"{folder}/transformers-js")
    return lambda ask: Answer(**node(asdict(ask)))


serve(ENGINE, load)
