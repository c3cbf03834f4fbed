"""Models of the Llama family, computed by this package: in torch, with CUDA graphs, or in ONNX
Runtime."""

import os

# ONNX Runtime, from 1.29 on, reports models and machine to Microsoft
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
