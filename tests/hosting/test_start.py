"""How the page starts and ends: what is imported, what it does before it answers, and SIGTERM
and Ctrl-C."""

import ast
import gc
import inspect
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from importlib.util import find_spec, module_from_spec

import gradio as gr
import pytest
from transformers import AutoModelForCausalLM

import app
from benchmarks.server import ROOT
from naive_speculate import ModelPair, SpeculativeDecoder
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.models.threads import THREADS_VARIABLE, num_threads
from naive_speculate.serving import LocalEngine
from naive_speculate.serving.visit import Trouble, Visit
from ui.host.catalog import Catalog, ServedPair
from ui.host.errors import Page
from ui.host.process import quick_imports
from ui.host.queue import open_queue


def catalog_of(pair: ModelPair) -> Catalog:
    engine = LocalEngine(SpeculativeDecoder(pair), max_rows=2)
    return Catalog({"one": ServedPair(engine, measurable=True)})


def test_pandas_is_imported_when_something_is_read_from_it(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "pandas"]:
        monkeypatch.delitem(sys.modules, name)
    with quick_imports(mcp=False):
        import pandas as named
    assert not {"pandas", "pandas.core"} & sys.modules.keys()
    assert named.DataFrame({"n": [1, 2]}).n.sum() == 3
    assert named.DataFrame is sys.modules["pandas"].DataFrame


def test_no_summary_of_calls_is_made_for_a_dashboard_that_is_not_there():
    with gr.Blocks() as page:
        open_queue(page, 8)
    page._queue.events_recorded = 1
    call = {"function": "f", "status": "success", "process_time": 1.0}
    assert page._queue.compute_analytics_summary([call]) == {"functions": {}}


def test_gradio_is_imported_without_its_stubs_and_without_what_is_not_wanted(monkeypatch):
    """One of its modules, once more: at each class of a component Gradio would parse the source,
    to write a stub."""
    name, before, frozen, parsed, parse = (
        "gradio.components.textbox",
        inspect.getfile,
        gc.get_freeze_count(),
        [],
        ast.parse,
    )
    again = module_from_spec(find_spec(name))
    monkeypatch.setitem(sys.modules, name, again)
    monkeypatch.delitem(sys.modules, "mcp", raising=False)
    monkeypatch.setattr(
        ast,
        "parse",
        lambda source, *rest, **more: (parsed.append(source), parse(source, *rest, **more))[1],
    )
    with quick_imports(mcp=False):
        again.__spec__.loader.exec_module(again)
        with pytest.raises(ImportError):
            import mcp  # noqa: F401
    assert not any("class Textbox(" in str(source) for source in parsed)
    assert (inspect.getfile, gc.isenabled(), gc.get_freeze_count() > frozen) == (before, True, True)
    assert hasattr(again.Textbox, "submit")
    assert inspect.getfile(again.Textbox).endswith("textbox.py")


@pytest.mark.parametrize(
    ("first", "log"),
    [("", "of Python\n"), ("os.close(2); sys.stderr = None; ", "")],
    ids=["log", "closed"],
)
def test_python_alone_writes_to_the_log_if_there_is_one(first, log):
    program = (
        f"import os, sys; from ui.host import process; {first}"
        "process.silence_native_code(); os.write(2, b'native')\n"
        "if sys.stderr: print('of Python', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", log)


POOLS = """
import ctypes, sys, threading
from ui.host.process import share_one_pool

share_one_pool()
together = threading.Barrier(4)

def work():
    kept = [bytes(5000) for _ in range(100)]
    together.wait()

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info(0, ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w")))
libc.fflush(None)
"""


def test_threads_take_memory_from_one_pool():
    done = subprocess.run([sys.executable, "-c", POOLS], capture_output=True, text=True, check=True)
    assert done.stdout.count("<heap ") == 1


def test_the_page_answers_while_the_models_warm_up_and_who_ends_it_then_sees_no_traceback(
    small_pair, monkeypatch, capsys
):
    monkeypatch.setattr("signal.signal", lambda *_: None)  # a test's thread may handle none
    monkeypatch.setenv("NAIVE_SPECULATE_TARGET", str(small_pair[0]))
    answers: list[int] = []

    def visited(catalog: Catalog) -> None:
        address = next(
            word for word in capsys.readouterr().out.split() if word.startswith("http://")
        )
        with urllib.request.urlopen(address) as answer:
            answers.append(answer.status)
        raise KeyboardInterrupt

    monkeypatch.setattr(Catalog, "warm_up", visited)
    assert app.main(["--device", "cpu"]) == 0
    assert answers == [200]
    assert not capsys.readouterr().err


def empty_page(*_: object) -> Page:
    with Page() as page:
        return page


def test_a_port_in_use_is_one_line_and_status_2(monkeypatch, capsys, small_decoder):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("ui.host.catalog.load_catalog", lambda *_: catalog_of(small_decoder.pair))
    monkeypatch.setattr("ui.page.build_page", empty_page)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert app.main(["--port", str(taken.getsockname()[1])]) == 2
    assert re.fullmatch(r"app\.py: .*\bport\b.*\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("given", "environment", "threads"),
    [
        *((host, "0.0.0.0", 3) for host in ("127.0.0.1", "localhost", "::1")),
        *((host, "", 5) for host in ("0.0.0.0", "::", "192.168.0.2", "my-machine.local")),
        ("", "", 3),
        ("", "0.0.0.0", 5),
    ],
)
def test_cores_are_shared_with_a_browser_only_where_one_runs_on_them(
    monkeypatch, capsys, given, environment, threads
):
    def threads_now(*_):
        raise ValueError(f"{num_threads()} threads")

    monkeypatch.setenv(THREADS_VARIABLE, "1")  # what `main` sets goes with the test
    monkeypatch.delenv(THREADS_VARIABLE)
    monkeypatch.setenv("GRADIO_SERVER_NAME", environment)
    monkeypatch.setattr("naive_speculate.models.threads.available_cores", lambda: 6)
    monkeypatch.setattr("ui.host.catalog.load_catalog", threads_now)
    assert app.main(["--host", given] if given else []) == 2
    assert capsys.readouterr().err == f"app.py: {threads} threads\n"


def test_warming_up_is_no_run_and_makes_way_for_a_visitor(small_decoder, monkeypatch):
    catalog, seen = catalog_of(small_decoder.pair), []
    submit = Visit.submit

    def watched(visit: Visit, *args):
        for events in submit(visit, *args):
            seen.append(catalog.load().running)
            catalog._measurer.interrupt()  # as every visitor's run does once it has started
            yield events

    monkeypatch.setattr(Visit, "submit", watched)
    catalog.warm_up()
    assert set(seen) == {0}
    catalog.close()


def test_a_pair_that_cannot_decode_is_reported_at_the_start(small_pair, small_decoder):
    model = AutoModelForCausalLM.from_pretrained(small_pair[0])
    broken = TransformersLanguageModel(model)
    model.lm_head.weight.data.fill_(float("nan"))
    catalog = catalog_of(
        ModelPair(target=broken, draft=broken, tokenizer=small_decoder.pair.tokenizer)
    )
    with pytest.raises(Trouble):
        catalog.warm_up()
    catalog.close()


PATIENCE = 60.0  # seconds; a process that does not end takes more
BUSY = """
import re, signal, sys, threading
from ui.host.process import end_in_time
end_in_time(0.2)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
# a shell lets jobs in the background ignore it
signal.signal(signal.SIGINT, signal.default_int_handler)

def work():
    print("busy", flush=True)
    re.match("(a+)+$", "a" * 60 + "b")

threading.Thread(target=work).start()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_whose_interpreter_is_not_free_ends_in_time(number):
    """The pattern takes ages in C, and lets no Python run: neither a handler nor another thread."""
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        process.send_signal(number)
        assert process.wait(PATIENCE) in (0, -signal.SIGKILL)


def test_the_program_is_a_screen_long():
    assert len((ROOT / "app.py").read_text(encoding="utf-8").split("\n")) <= 80
