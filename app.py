"""The page: run `python app.py`; a Space runs it too."""

import argparse
import atexit
import faulthandler
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from naive_speculate.arguments import Parser, parsed, print_for_people

_port = parsed(int, "a number from 1 to 65535", lambda found: 0 < found < 2**16)


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
            _port(
                port
            )  # Gradio reads it also where --port is given, and its error would not name it
        except argparse.ArgumentTypeError as error:
            parser.error(f"GRADIO_SERVER_PORT {error}")
    return args


def main(argv: list[str] | None = None) -> int:
    """Serve the page until the process is asked to end; a wrong setting, a port in use or a
    broken pair is one line."""
    print_for_people()  # Gradio prints to it
    args = arguments(argv)
    try:
        serve(args)
    except (KeyboardInterrupt, SystemExit):
        pass  # SIGTERM, or Ctrl-C before `block_thread`, which handles it
    except (ValueError, OSError) as error:
        print(f"app.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def serve(args: argparse.Namespace) -> None:
    """Load the pairs, build and serve the page, then load and warm up the other pairs, and wait."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # Gradio reads it at import
    # Imported here, so that --help does not load the models' libraries.
    from ui.gradio_gaps import quick_imports
    from ui.host.zero import import_spaces_first

    with quick_imports(mcp=args.mcp):
        import_spaces_first()
        from naive_speculate.infer.memory import settle_memory
        from naive_speculate.infer.threads import num_threads, share_cores
        from ui.host.catalog import join_catalog, load_catalog
        from ui.host.configuration import cluster_engines, read_configuration
        from ui.host.operations import Counters, log_runs, routes, with_queue
        from ui.host.visitors import is_loopback
        from ui.page import build_page, launch
        from ui.run.recorded import traces
        from ui.run.runs import Runs

    if is_loopback(args.host or os.environ.get("GRADIO_SERVER_NAME") or "localhost"):
        share_cores()  # with the browser
    num_threads()  # checks its environment variable now
    configuration = read_configuration(os.environ, vars(args))
    counters = Counters(lambda: with_queue(catalog.load(), page))  # read once the page is there
    observers = (log_runs(prompts=args.log_prompts), counters.observe)
    if args.engine == "ray":
        catalog = join_catalog(
            configuration, cluster_engines(configuration, args.ray_address), observers
        )
    else:
        catalog = load_catalog(configuration, observers)
    runs = Runs()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    page = build_page(catalog, runs)
    try:
        launch(
            page,
            configuration.queue_size,
            [traces(runs), *routes(counters, configuration.metrics)],
            configuration.hosts,
            server_name=args.host,
            server_port=args.port,
            share=args.share,
            mcp_server=args.mcp,
            # Gradio keeps a megabyte per session, and recreates it if necessary.
            state_session_capacity=2 * configuration.concurrency,
        )
        catalog.load_later()  # the page is up, and the other pairs decode
        catalog.warm_up()
        settle_memory()
        page.block_thread()
    finally:
        runs.cancel_all()
        page.close(verbose=False)
        catalog.close()


def leave(status: int) -> NoReturn:
    """End the process at once: Python would first search half a million objects for garbage,
    which takes seconds."""
    atexit._run_exitfuncs()  # exit handlers of libraries
    with suppress(OSError):  # the reader may be gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def end_in_time(seconds: float = 8.0) -> None:
    """Let another process kill this one so many seconds after SIGTERM or Ctrl-C, whatever this
    one is doing.

    Python runs signal handlers only when the interpreter is free. Its C code writes the signal's
    number to a pipe at once.
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

    def kill(*_: object) -> None:
        os.kill(served, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGALRM, kill)
    for number in iter(lambda: os.read(reader, 1), b""):  # no byte once the other process has ended
        if number[0] in (signal.SIGTERM, signal.SIGINT) and not any(
            signal.getitimer(signal.ITIMER_REAL)
        ):
            signal.setitimer(signal.ITIMER_REAL, seconds)
    os._exit(0)


def silence_native_code() -> None:
    """Let Python alone write to the log. Native libraries print warnings about visitors'
    input, and not all have a setting against it. A crash of native code still leaves the lines
    of Python that it came from."""
    if (
        sys.stderr is None
        # it is closed: then there is no log, but 2 could become the number of a visitor's
        # connection
    ):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        return
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    faulthandler.enable(sys.stderr)


if __name__ == "__main__":
    end_in_time()  # before there are threads and models
    silence_native_code()
    leave(main())
