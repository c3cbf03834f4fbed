"""A GGUF file with the metadata of another and its values in another type."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf

from naive_speculate.models.gguf.metadata import read_header
from naive_speculate.models.gguf.weights import dequantised

_OWN = ("GGUF.", "general.architecture", "general.file_type")  # what the writer adds itself


def write_like(
    source: Path,
    path: Path,
    file_type: gguf.LlamaFileType,
    converted: Callable[[Any], tuple[Any, gguf.GGMLQuantizationType | None]],
) -> None:
    """Write a file like `source`. `converted` gives each tensor's float32 values as they are
    stored, and their type if it is not the array's own."""
    fields = gguf.GGUFReader(source).fields
    writer = gguf.GGUFWriter(str(path), fields["general.architecture"].contents())
    writer.add_file_type(file_type)
    for name, field in fields.items():
        if not name.startswith(_OWN):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for name, tensor in read_header(source)[1].items():
        values, kind = converted(dequantised(source, tensor).numpy())
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
