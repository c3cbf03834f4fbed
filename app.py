"""The page: `python app.py` here, and the entry point of a Space."""

import argparse
import atexit
import logging
import os
import select
import signal
import sys
import time
from contextlib import suppress
from ipaddress import ip_address
from typing import NoReturn

from naive_speculate.arguments import Parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:6]) < 2**16:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to 65535, got {text!r:.20}")
    return int(text)


def is_local(host: str) -> bool:
    """Whether only this machine can visit a page that listens on that address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # another name
        return False


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(
        prog="app.py",
        description="The Naive Speculate page: speculative decoding that one can watch. "
        "What is not given here is taken from the environment; docs/hosting.md has the table.",
    )
    add = parser.add_argument
    add("--host", help="address to listen on (GRADIO_SERVER_NAME; 127.0.0.1)")
    add("--port", type=_port, help="port to listen on (GRADIO_SERVER_PORT; the first free one from 7860)")
    add("--share", action="store_true", help="also make a public link through Gradio's servers")
    add("--target", help="target model: a Hub id, a local folder, a GGUF file or smollm2; else smollm2 and the bundled pair")
    add("--draft", help="draft model: a Hub id, a local folder or a GGUF file")
    add("--head", help="draft head of the target: a Hub id or a local folder")
    add("--device", help="cpu, cuda, … (auto)")
    add("--dtype", help="float32, bfloat16, … (auto)")
    add("--mcp", action="store_true", help="offer the endpoint /generate to language models as an MCP tool as well")
    add("--log-prompts", action="store_true", help="tell prompts in the log; without it the log never does")
    add("--engine", choices=("local", "ray"), default="local", help="what decodes: this process, or replicas on a Ray cluster")
    add("--ray-address", help="the cluster, as host:port; without it this machine's, or a new one (docs/scaling.md)")
    args = parser.parse_args(argv)
    if args.ray_address and args.engine != "ray":
        parser.error("--ray-address is for --engine ray")
    return args


def main(argv: list[str] | None = None) -> int:
    """Load the pairs, build the page, serve it until the process is told to end."""
    args = arguments(argv)
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # Gradio reads it when it is imported
    # Imported here, so that --help need not wait for the models' libraries.
    from ui.host.imports import quick_imports
    from ui.host.zero import make_way

    with quick_imports(mcp=args.mcp):
        make_way()
        from naive_speculate.infer.threads import num_threads, share_cores
        from naive_speculate.serving import Load
        from naive_speculate.serving.memory import settle_memory
        from naive_speculate.serving.run_records import RunRecord
        from ui.host.catalog import join_catalog, load_catalog
        from ui.host.cluster import cluster_engines
        from ui.host.configuration import read_configuration
        from ui.host.operations import LOGGER, Counters, log_runs, routes, with_queue
        from ui.host.origin import readable
        from ui.page import build_page, launch, open_queue
        from ui.run.replay import traces
        from ui.run.runs import Runs

    if is_local(args.host or os.environ.get("GRADIO_SERVER_NAME") or "localhost"):
        share_cores()  # with the browser
    counted: list[Counters] = []

    def count(run: RunRecord) -> None:
        for counters in counted:
            counters.observe(run)

    try:
        num_threads()  # says so now where its variable cannot be
        configuration = read_configuration(os.environ, vars(args))
        observers = (log_runs(prompts=args.log_prompts), count)
        if args.engine == "ray":
            catalog = join_catalog(configuration, cluster_engines(configuration, args.ray_address), observers)
        else:
            catalog = load_catalog(configuration, observers)
    except (ValueError, OSError) as error:
        print(f"app.py: {error}", file=sys.stderr)
        return 2
    LOGGER.setLevel(logging.INFO)
    LOGGER.addHandler(logging.StreamHandler())
    runs = Runs()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    page = build_page(catalog, runs)
    open_queue(page, configuration.queue_size)

    def load() -> Load:
        return with_queue(catalog.load(), page)

    counted.append(Counters(load))
    try:
        launch(
            page,
            [traces(runs), *readable(routes(counted[0], load), configuration.metrics)],
            configuration.hosts,
            server_name=args.host,
            server_port=args.port,
            share=args.share,
            # Gradio keeps a megabyte for every session it has seen, and makes it anew where it is missing.
            state_session_capacity=2 * configuration.concurrency,
            show_error=True,  # programs are told what was wrong with their call
            mcp_server=args.mcp,
            prevent_thread_lock=True,
        )
        catalog.load_later()  # the page can be read meanwhile, and the other pairs decode
        catalog.warm_up()
        settle_memory()
        page.block_thread()
    except (KeyboardInterrupt, SystemExit):
        pass  # it was told to end: SIGTERM, or Ctrl-C before `block_thread`, which would have taken it
    except (ValueError, OSError) as error:  # the port is taken, the address is not this machine's; a pair cannot decode
        print(f"app.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    finally:
        runs.cancel_all()
        page.close(verbose=False)
        catalog.close()
    return 0


def leave(status: int) -> NoReturn:
    """End the process at once: Python would look half a million objects through for garbage first, which takes it seconds."""
    atexit._run_exitfuncs()  # what libraries want done is done
    with suppress(OSError):  # who was reading may have gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def end_in_time(seconds: float = 8.0) -> None:
    """Have another process end this one so long after SIGTERM, whatever this one is doing then.

    Python runs its handler once the interpreter is free. Before that, its C code writes the signal's number into a pipe.
    """
    if not hasattr(os, "fork"):
        return
    reader, writer = os.pipe()
    served = os.getpid()
    if os.fork() > 0:
        os.close(reader)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        return
    os.setsid()  # Ctrl-C is for the other process
    os.close(writer)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 2)
    until = None
    while until is None or time.monotonic() < until:
        if select.select([reader], [], [], None if until is None else until - time.monotonic())[0]:
            said = os.read(reader, 1)
            if not said:  # it has ended
                os._exit(0)
            if said[0] == signal.SIGTERM and until is None:
                until = time.monotonic() + seconds
    os.kill(served, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    end_in_time()  # before there are threads and models
    leave(main())
