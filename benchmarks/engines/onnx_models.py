"""The models as ONNX Runtime GenAI's builder writes them, for the adapters that read ONNX. It runs
in an engine's own environment."""

import subprocess
import sys
from pathlib import Path


def converted(folder: str, name: str) -> Path:
    """The folder of one of the two models, made on first use."""
    own = Path(folder) / "onnx" / name
    if not own.exists():
        build = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", name]
        build += ["-i", f"{folder}/{name}", "-o", str(own), "-p", "fp32", "-e", "cpu"]
        subprocess.run(build, check=True)
    return own
