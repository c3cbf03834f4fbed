"""Models in GGUF files, read without llama.cpp and computed by the executors of other models."""
