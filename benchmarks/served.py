"""The page in this process, next to its decoder."""

import os

import gradio as gr

from benchmarks.server import free_port
from naive_speculate import SpeculativeDecoder
from naive_speculate.models.memory import settle_memory
from naive_speculate.models.threads import share_cores
from naive_speculate.serving import LocalEngine
from ui.host.catalog import load_catalog
from ui.host.configuration import read_configuration
from ui.page import build_page, launch
from ui.run.runs import Runs


def serve() -> tuple[str, SpeculativeDecoder, gr.Blocks]:
    """Start the page like `app.py`; returns its address, its decoder and itself."""
    share_cores()
    names = os.environ | {"NAIVE_SPECULATE_PAIRS": "bundled"}
    catalog = load_catalog(read_configuration(names, {"device": "cpu"}))
    page = build_page(catalog, Runs())
    catalog.warm_up()
    settle_memory()
    url = launch(page, 32, server_port=free_port(), quiet=True)
    engine = next(iter(catalog.pairs.values())).engine
    assert isinstance(engine, LocalEngine)
    return url, engine.decoder, page
