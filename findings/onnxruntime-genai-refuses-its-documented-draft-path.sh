#!/usr/bin/env bash
# Guess: docs/SpeculativeDecoding.md of onnxruntime-genai shows where a draft model's files are named
#   in genai_config.json: "../target/model.onnx" and "../draft/model.onnx" next to the folder of the
#   pair, so that target and draft stay where their builder wrote them.
# So it is: 0.18.0 refuses every file name with "..": the model is not even looked for. Target and
#   draft have to lie inside the folder of the pair; "target/model.onnx" is looked for there.
# Versions: onnxruntime-genai 0.18.0, onnxruntime 1.32.0, numpy 2.4.6; 2026-11-29.
# Output seen:
#   onnxruntime-genai 0.18.0 onnxruntime 1.32.0
#   as documented: model.decoder.filename: Config path must not contain path traversal (..): ../target/model.onnx
#   inside: Load model from pair1/target/model.onnx failed:Load model pair1/target/model.onnx failed. File doesn't exist
#   as described: the documented names are refused
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  onnxruntime-genai==0.18.0 onnxruntime==1.32.0 numpy==2.4.6 2>/dev/null || exit 2
cat > pair.py <<'PY'
import json
import os
import sys
from importlib.metadata import version

import onnxruntime_genai

DECODER = {
    "head_size": 8, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2,
    "num_hidden_layers": 1, "inputs": {}, "outputs": {},
}


def said(number, target, draft):
    """What loading a pair with these file names says; neither file is there."""
    model = {"type": "llama", "vocab_size": 16, "bos_token_id": 1, "eos_token_id": 0,
             "pad_token_id": 0, "context_length": 64,
             "decoder": DECODER | {"filename": target}, "draft": DECODER | {"filename": draft}}
    folder = f"pair{number}"
    os.makedirs(folder)
    with open(f"{folder}/genai_config.json", "w") as file:
        json.dump({"model": model, "speculative": {"max_draft_tokens": 4}}, file)
    try:
        onnxruntime_genai.Model(folder)
    except Exception as error:
        return str(error).strip().replace(os.getcwd(), "").split("\n")[0][:110]
    return "loaded"


print("onnxruntime-genai", version("onnxruntime-genai"), "onnxruntime", version("onnxruntime"))
documented = said(0, "../target/model.onnx", "../draft/model.onnx")
inside = said(1, "target/model.onnx", "draft/model.onnx")
print("as documented:", documented)
print("inside:", inside)
as_described = "path traversal" in documented and "path traversal" not in inside
print("as described: the documented names are refused" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python pair.py
