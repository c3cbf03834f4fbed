"""Models in GGUF files, computed by llama.cpp through llama-cpp-python."""
