"""The mean of exported models' weights, or draft heads': ``python -m train.average OUT FOLDER=SHARE FOLDER=SHARE …``.

Where one leg of training began with the other's end, a point between the two can be better than either (weight averaging,
Izmailov et al. 2018, arXiv 1803.05407; model soups, Wortsman et al. 2022, arXiv 2203.05482).
"""

import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from train.checkpoint import differences
from train.errors import TrainingError
from train.export import written_anew

USAGE = "usage: python -m train.average OUT FOLDER=SHARE FOLDER=SHARE …"
WEIGHTS = "*.safetensors"
ALIKE = ("config.json", "tokenizer.json")
"""Files that must be the same: weights mean something only with them."""


def average(shares: Sequence[tuple[Path, float]], out: Path) -> None:
    """Write what lies in the first folder, with the mean of all folders' weights; shares are divided by their sum.

    Raises:
        TrainingError: If a folder holds no weights, two differ in shape, configuration or tokenizer, or a share is not above 0.
    """
    for folder, share in shares:
        if not 0 < share < math.inf:
            raise TrainingError(f"{folder}: its share must be above 0, got {share:g}")
        if not any(folder.glob(WEIGHTS)):
            raise TrainingError(f"no exported model in {folder}")
    first, total = shares[0][0], sum(share for _, share in shares)
    with written_anew(out) as partial:
        for path in sorted(first.iterdir(), key=lambda path: (not path.match(WEIGHTS), path.name)):
            if path.match(WEIGHTS):
                given = [(_read(folder, path.name, first), share / total) for folder, share in shares]
                save_file({name: _mean(name, given) for name in given[0][0]}, partial / path.name, {"format": "pt"})
            else:
                if path.name in ALIKE and any(_bytes(folder / path.name) != path.read_bytes() for folder, _ in shares):
                    raise TrainingError(f"{path.name} is not the same in {', '.join(str(folder) for folder, _ in shares)}")
                shutil.copyfile(path, partial / path.name)
            (partial / path.name).chmod(0o644)


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _read(folder: Path, name: str, first: Path) -> dict[str, torch.Tensor]:
    """A file of weights, which must be of the shapes of the first folder's."""
    here = load_file(first / name)
    if folder == first:
        return here
    there = load_file(folder / name) if (folder / name).is_file() else {}
    theirs, ours = ({key: list(weight.shape) for key, weight in weights.items()} for weights in (there, here))
    if found := differences(theirs, ours):
        raise TrainingError(f"{folder} is of another shape than {first} ({'; '.join(found)})")
    return there


def _mean(name: str, given: Sequence[tuple[dict[str, torch.Tensor], float]]) -> torch.Tensor:
    first = given[0][0][name]
    if not first.is_floating_point():  # a head's table of tokens
        return first
    return torch.stack([weights[name].float() * share for weights, share in given]).sum(0).to(first.dtype)


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        shares = [(Path(folder), float(share)) for folder, _, share in (name.rpartition("=") for name in given[1:])]
        if len(shares) < 2:
            raise ValueError
    except ValueError:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        average(shares, Path(given[0]))
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
