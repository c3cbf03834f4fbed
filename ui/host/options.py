"""The command line of the page."""

import argparse
import os

from naive_speculate.tools.arguments import Parser, parsed

_port = parsed(int, "a number from 1 to 65535", lambda port: 0 < port < 2**16)


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(
        prog="app.py",
        description=(
            "The Naive Speculate page: watch speculative decoding. "
            "Options that are not given come from the environment; docs/hosting.md lists them."
        ),
    )
    add = parser.add_argument
    add("--host", help="address to listen on (GRADIO_SERVER_NAME; 127.0.0.1)")
    add(
        "--port",
        type=_port,
        help="port to listen on (GRADIO_SERVER_PORT; the first free one from 7860)",
    )
    add("--share", action="store_true", help="also make a public link through Gradio's servers")
    add(
        "--target",
        help=(
            "target model: a Hub id, a local folder, a GGUF file or smollm2; else smollm2 and the"
            " bundled pair"
        ),
    )
    add("--draft", help="draft model: a Hub id, a local folder or a GGUF file")
    add("--head", help="draft head of the target: a Hub id or a local folder")
    add("--device", help="cpu, cuda, … (auto)")
    add("--dtype", help="float32, bfloat16, … (auto)")
    add("--weights", help="float32, or int8: rounded to 8 bits, about twice as fast on a CPU")
    add("--mcp", action="store_true", help="also offer /generate to language models as an MCP tool")
    add("--log-prompts", action="store_true", help="log prompts; they are not logged by default")
    add(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="decode in this process, or on the replicas of a Ray cluster",
    )
    add(
        "--ray-address",
        help="the cluster, as host:port; default: this machine's, or a new one (docs/scaling.md)",
    )
    args = parser.parse_args(argv)
    if args.ray_address and args.engine != "ray":
        parser.error("--ray-address is for --engine ray")
    if (port := os.environ.get("GRADIO_SERVER_PORT")) is not None:
        try:
            # Gradio reads it also where --port is given, and its error would not name it
            _port(port)
        except argparse.ArgumentTypeError as error:
            parser.error(f"GRADIO_SERVER_PORT {error}")
    return args
