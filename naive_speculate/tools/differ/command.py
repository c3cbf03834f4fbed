"""The command `python -m naive_speculate differ --target M --prompt-file P A.txt B.txt`."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from naive_speculate.text import visible
from naive_speculate.tools.arguments import Parser, adder, positive, print_json, text_file
from naive_speculate.tools.differ.compare import HALF, Difference, Verdict, differ
from naive_speculate.tools.tables import table

BOTH_RIGHT = (Verdict.SAME, Verdict.NEAR_TIE)


def _parser() -> Parser:
    parser = Parser(
        prog="naive_speculate differ",
        description="Explain why two texts of the same prompt differ.",
        epilog=(
            "Exit status: 0 if both texts are right (the same, or a near tie), 1 otherwise, 2 for"
            " bad input."
        ),
    )
    add = adder(parser)
    add("a A.txt", "one text, without the prompt; a last line end does not count", text_file)
    add("b B.txt", "the other", text_file)
    add("--target M", "Hub id, local folder, GGUF file or smollm2", required=True)
    add("--prompt-file P", "file with the prompt of both", text_file, required=True)
    add("--chat", "the prompt is a user turn in the chat template", action="store_true")
    add("--greedy", "both texts were decoded at temperature 0", action="store_true")
    help = "verification computes K + 1 rows (default: %(default)s)"
    add("--num-draft-tokens K", help, positive, 5)
    add("--dtype", "half precision to compare with float32", default="bfloat16", choices=HALF)
    add("--device D", "auto, cpu, cuda …", default="auto")
    add("--json", "print the result as a JSON object, and nothing else", action="store_true")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Raises `ValueError` if an input is bad; `OSError` if a file cannot be read."""
    args = _parser().parse_args(arguments)
    options = {
        name: getattr(args, name)
        for name in ("num_draft_tokens", "dtype", "chat", "greedy", "device")
    }
    # An editor adds a line end; one that the other text continues is the model's.
    a, b = (
        one if other.startswith(one) else one.removesuffix("\n")
        for one, other in ((args.a, args.b), (args.b, args.a))
    )
    difference = differ(args.target, args.prompt_file, a, b, **options)
    if args.json:
        print_json(difference.to_dict())
    else:
        show(difference, Console(highlight=False))
    return 0 if difference.verdict in BOTH_RIGHT else 1


def show(difference: Difference, console: Console) -> None:
    if difference.index is not None:
        console.print(f"The first {difference.index} tokens are the same. Then:", soft_wrap=True)
        for name, token in (("A", difference.token_a), ("B", difference.token_b)):
            line = Text(f"  {name}  …{visible(difference.before)}", "dim", end="")
            console.print(line, Text(visible(token), "bold reverse"), sep="", soft_wrap=True)
    if difference.margins:
        rows = [
            {
                "dtype": m.dtype,
                "rows": str(m.num_rows),
                "A": f"{m.log_prob_a:.4f}",
                "B": f"{m.log_prob_b:.4f}",
                "margin A − B": f"{m.margin:+.4f}",
                "top two tokens": Text(" ".join(repr(visible(text)) for text in m.top)),
            }
            for m in difference.margins
        ]
        title = "log p at the first divergence, in nats"
        console.print(table(rows, left=["dtype", "top two tokens"], title=title))
        console.print(
            f"Rounding moves such margins by up to {difference.rounding:.4f} nats in this text.",
            soft_wrap=True,
        )
    console.print(
        Text(f"{difference.verdict.value.capitalize()}. {difference.explanation}", "bold"),
        soft_wrap=True,
    )
