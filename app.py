"""The page: run `python app.py`; a Space runs it too."""

import argparse
import os
import signal
import sys

from naive_speculate.tools.arguments import print_for_people
from ui.host.options import arguments
from ui.host.process import leave, prepare, quick_imports


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
    # Imported here, so that --help does not load the models' libraries.
    with quick_imports(mcp=args.mcp):
        from ui.host.zero import import_spaces_first

        import_spaces_first()  # before torch
        from naive_speculate.models.memory import settle_memory
        from naive_speculate.models.threads import num_threads, share_cores
        from ui.host.catalog import open_catalog
        from ui.host.configuration import read_configuration
        from ui.host.operations import Counters, log_runs, routes, with_queue
        from ui.host.visitors import is_loopback
        from ui.page import build_page, launch
        from ui.run.recorded import traces
        from ui.run.runs import Runs

    if is_loopback(args.host or os.environ.get("GRADIO_SERVER_NAME") or "localhost"):
        share_cores()  # with the browser
    num_threads()  # checks its environment variable now
    configuration, runs = read_configuration(os.environ, vars(args)), Runs()
    counters = Counters(lambda: with_queue(catalog.load(), page))  # read once the page is there
    observers = (log_runs(prompts=args.log_prompts), counters.count)
    catalog = open_catalog(configuration, observers, args.engine, args.ray_address)
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


if __name__ == "__main__":
    prepare()
    leave(main())
