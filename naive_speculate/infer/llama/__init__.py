"""The Llama family, computed by executors of our own: ONNX Runtime, torch, CUDA graphs."""
