"""The mean of exported models' weights: ``python -m train.average OUT FOLDER=SHARE FOLDER=SHARE …``.

Where one leg of training began with the other's end, a point between the two is better than either (weight averaging,
Izmailov et al. 2018, arXiv 1803.05407; model soups, Wortsman et al. 2022, arXiv 2203.05482).
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from train.checkpoint import differences
from train.errors import TrainingError
from train.export import export

USAGE = "usage: python -m train.average OUT FOLDER=SHARE FOLDER=SHARE …"


@torch.no_grad()
def average(shares: Sequence[tuple[Path, float]]) -> LlamaForCausalLM:
    """The mean of these exported models, whose shares are divided by their sum; computed in float32.

    Raises:
        TrainingError: If a folder holds no model, two are of different shapes, or a share is not above 0.
    """
    mean: LlamaForCausalLM | None = None
    total = sum(share for _, share in shares)
    for folder, share in shares:
        if not share > 0:
            raise TrainingError(f"{folder}: its share must be above 0, got {share:g}")
        if not (folder / "config.json").is_file():
            raise TrainingError(f"no exported model in {folder}")
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
        if mean is None:
            mean = model
            for weight in mean.parameters():
                weight.mul_(share / total)
            continue
        there, here = ({name: list(weight.shape) for name, weight in each.named_parameters()} for each in (model, mean))
        if found := differences(there, here):
            raise TrainingError(f"{folder} is of another shape than {shares[0][0]} ({'; '.join(found)})")
        for weight, other in zip(mean.parameters(), model.parameters(), strict=True):
            weight.add_(other, alpha=share / total)
    if mean is None:
        raise TrainingError("nothing to average")
    return mean


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
        mean = average(shares)
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    export(mean, Tokenizer.from_file(str(shares[0][0] / "tokenizer.json")), Path(given[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
