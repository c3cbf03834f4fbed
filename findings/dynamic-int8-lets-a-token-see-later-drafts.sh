#!/usr/bin/env bash
# Guess: in 8 bits a token's logits are less exact, and still depend on the tokens before it alone;
#   so greedy text with drafts is the plain greedy text but for rounding in the last bits.
# So it is: dynamic 8-bit quantization in PyTorch (torch.ao, quantize_dynamic) and ONNX Runtime
#   (quantize_dynamic) takes one scale for all activations of a matrix product, those of all tokens
#   of a pass. So an earlier token's result changes with a later one, rejected drafts included, by
#   up to a tenth and more of its spread where the later token's numbers are large. Greedy text with
#   drafts is another text, even if the model drafts for itself, and in a prompt read at once a
#   token sees the tokens after it. per_channel=True in ONNX Runtime is about weights and changes
#   nothing here. torchao's dynamic 8 bits have a scale per token: there rows are the same bits. Yet
#   some texts with drafts are others there, too: last bits of the float32 attention before a product
#   decide which whole number an activation is rounded to.
# Versions: torch 2.13.0 (CPU), transformers 5.24.0, torchao 0.18.0, onnxruntime 1.31.1, onnx 1.23.2,
#   numpy 2.4.6; 2026-11-28.
# Output seen:
#   {'torch': '2.13.0+cpu', 'torchao': '0.18.0', 'transformers': '5.24.0', 'onnxruntime': '1.31.1'}
#   float32                  a later token moves earlier ones by 0.0e+00 standard deviations
#   torchao                  a later token moves earlier ones by 0.0e+00 standard deviations
#   torch.ao                 a later token moves earlier ones by 2.6e-01 standard deviations
#   onnxruntime              a later token moves earlier ones by 1.7e-01 standard deviations
#   onnxruntime per_channel  a later token moves earlier ones by 1.7e-01 standard deviations
#   float32                  greedy texts with the model as its own draft: 8 of 8 as without drafts
#   torchao                  greedy texts with the model as its own draft: 5 of 8 as without drafts
#   torch.ao                 greedy texts with the model as its own draft: 0 of 8 as without drafts
#   as described: one scale for all tokens
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  torch==2.13.0 transformers==5.24.0 torchao==0.18.0 onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6 \
  || exit 2
cat > scale.py <<'PY'
import copy
import sys
import warnings
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
from transformers import LlamaConfig, LlamaForCausalLM, logging

warnings.filterwarnings("ignore")
logging.set_verbosity_error(), torch.set_num_threads(1)
H, V, TEXTS, TOKENS = 64, 64, 8, 30
torch.manual_seed(0)
weight, rows = torch.randn(H, H) / 8, torch.randn(5, H)
rows[4] *= 8  # a later token with large numbers


def in_torch(weight):
    linear = torch.nn.Linear(H, H, bias=False)
    linear.weight.data = weight
    return torch.nn.Sequential(linear)


def old(model):
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def new(model):
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model


def in_onnx(**options):
    floats = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", H])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [floats("x")], [floats("y")],
        [numpy_helper.from_array(weight.T.contiguous().numpy(), "w")],
    )
    opset = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), "float.onnx")
    quantize_dynamic("float.onnx", "int8.onnx", weight_type=QuantType.QInt8, **options)
    session = onnxruntime.InferenceSession("int8.onnx")
    return lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


def change(product):
    """How far the fifth row moves the first four, in standard deviations of their results."""
    with torch.no_grad():
        alone, together = product(rows[:4]), product(rows)[:4]
    return float((alone - together).abs().max() / alone.std())


def equal_texts(quantized):
    """Greedy texts of a small Llama, with the same model as its draft and without."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=V, hidden_size=H, intermediate_size=H, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=256, initializer_range=0.15, pad_token_id=0, bos_token_id=None,
        eos_token_id=None, tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).eval()
    model = quantized(model) if quantized else model
    draft, same = copy.deepcopy(model), 0
    draft.generation_config.assistant_confidence_threshold = 0.0
    for seed in range(TEXTS):
        ids = torch.randint(1, V, (1, 8), generator=torch.Generator().manual_seed(seed))
        options = dict(attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS)
        plain = model.generate(ids, **options)
        same += plain.equal(model.generate(ids, assistant_model=draft, **options))
    return same


print({name: version(name) for name in ("torch", "torchao", "transformers", "onnxruntime")})
moved = {
    "float32": change(in_torch(weight)),
    "torchao": change(new(in_torch(weight.clone()))),
    "torch.ao": change(old(in_torch(weight.clone()))),
    "onnxruntime": change(in_onnx()),
    "onnxruntime per_channel": change(in_onnx(per_channel=True)),
}
for name, size in moved.items():
    print(f"{name:24s} a later token moves earlier ones by {size:.1e} standard deviations")
texts = {"float32": equal_texts(None), "torchao": equal_texts(new), "torch.ao": equal_texts(old)}
for name, same in texts.items():
    print(f"{name:24s} greedy texts with the model as its own draft: {same} of {TEXTS} as without drafts")
exact = moved["float32"] < 1e-5 and moved["torchao"] == 0
exact &= texts["float32"] == TEXTS
dependent = min(moved["torch.ao"], moved["onnxruntime"], moved["onnxruntime per_channel"]) > 0.05
as_described = exact and dependent and texts["torch.ao"] < texts["torchao"]
print("as described: one scale for all tokens" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python scale.py
