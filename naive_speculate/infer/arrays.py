"""The type of ONNX Runtime's inputs and outputs."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
