"""Models of the Llama family, computed by this package: in torch, with CUDA graphs, or in ONNX
Runtime."""

import os

os.environ.setdefault(
    "ORT_DISABLE_TELEMETRY", "1"
)  # ONNX Runtime, from 1.29 on, reports models and machine to Microsoft
