"""The page: `python app.py` here, and the entry point of a Space."""

import argparse
import os
import signal
import sys


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="The Naive Speculate page: speculative decoding that one can watch.")
    parser.add_argument("--host", help="address to listen on (GRADIO_SERVER_NAME; 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (GRADIO_SERVER_PORT; the first free one from 7860)")
    parser.add_argument("--share", action="store_true", help="also make a public link through Gradio's servers")
    parser.add_argument("--target", help="target model: a Hub id or a local folder; the bundled pair without it")
    parser.add_argument("--draft", help="draft model: a Hub id or a local folder")
    parser.add_argument("--device", default="auto", help="cpu, cuda, … (auto)")
    parser.add_argument("--dtype", default="auto", help="float32, bfloat16, … (auto)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Load the pair, build the page, serve it until the process is told to end."""
    args = arguments(argv)
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # Gradio reads it when it is imported
    # Imported here, so that --help need not wait for the models' libraries.
    from naive_speculate.infer.cores import share_cores
    from ui.assets import styles
    from ui.host import offer
    from ui.page import build_page
    from ui.runs import Runs
    from ui.theme import theme

    share_cores()  # with the server, and with a browser where it runs on the same machine
    try:
        chosen = offer(args.target, args.draft, device=args.device, dtype=args.dtype)
    except (ValueError, OSError) as error:
        print(f"app.py: {error}", file=sys.stderr)
        return 2
    runs = Runs()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    page = build_page(chosen, runs)
    page.queue(max_size=64)
    try:
        page.launch(
            server_name=args.host,
            server_port=args.port,
            share=args.share,
            theme=theme(),
            head=f"<style>{styles()}</style>",
            footer_links=["api"],
            ssr_mode=False,
        )
    finally:
        runs.cancel_all()
        page.close(verbose=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
