"""How the page starts: what is imported, and what it does before it answers."""

import subprocess
import sys
import threading
import urllib.request

import pytest
from transformers import AutoModelForCausalLM

import app
from naive_speculate import ModelPair, SpeculativeDecoder
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.models import BUNDLED_PAIR
from naive_speculate.serving import LocalEngine, Request
from ui.host.catalog import Catalog, ServedPair, Trouble


def catalog_of(pair: ModelPair) -> Catalog:
    engine = LocalEngine(SpeculativeDecoder(pair), max_rows=2)
    return Catalog({"one": ServedPair(engine, engine)})


def test_gradio_is_imported_without_its_stubs_and_without_what_is_not_wanted():
    look = (
        "import ast, gc, inspect, sys\n"
        "from ui.host.imports import quick_imports\n"
        "parsed, before, parse = [], inspect.getfile, ast.parse\n"
        "ast.parse = lambda source, *rest, **more: (parsed.append(source), parse(source, *rest, **more))[1]\n"
        "with quick_imports(mcp=False):\n"
        "    import gradio\n"
        "print(any('(Component' in str(source) for source in parsed), 'mcp' in sys.modules)\n"
        "print(inspect.getfile is before, gc.isenabled(), gc.get_freeze_count() > 0)\n"
        "print(hasattr(gradio.Textbox, 'submit'), inspect.getfile(gradio.Textbox).endswith('textbox.py'))\n"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\nTrue True True\nTrue True\n"


def test_the_page_answers_while_the_models_warm_up(monkeypatch, capsys):
    answers: list[int] = []

    def visited(catalog: Catalog) -> None:
        address = next(word for word in capsys.readouterr().out.split() if word.startswith("http://"))
        with urllib.request.urlopen(address) as answer:
            answers.append(answer.status)
        raise Trouble("nothing decodes")

    monkeypatch.setattr(Catalog, "warm_up", visited)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert app.main(["--device", "cpu"]) == 2
    assert answers == [200]
    assert capsys.readouterr().err.endswith("app.py: nothing decodes\n")


def test_whoever_ends_the_page_while_it_warms_up_sees_no_traceback(monkeypatch, capsys):
    def interrupted(catalog: Catalog) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Catalog, "warm_up", interrupted)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert app.main(["--device", "cpu"]) == 0
    assert not capsys.readouterr().err


def test_warming_up_is_no_run_and_makes_way_for_a_visitor(bundled_pair):
    catalog = catalog_of(bundled_pair)
    served = catalog.pairs["one"]
    seen, asked = [], threading.Event()
    engine, submit = served.engine, served.engine.submit

    def watched(request: Request, cancel=None):
        for events in submit(request, cancel):
            seen.append(catalog.load().running)
            asked.set()
            catalog._measurer.make_way()  # as every visitor's run does before it begins
            yield events

    engine.submit = watched
    catalog.warm_up()
    assert asked.is_set()
    assert set(seen) == {0}
    catalog.close()


def test_a_pair_that_cannot_decode_is_told_at_the_start(bundled_pair):
    model = AutoModelForCausalLM.from_pretrained(BUNDLED_PAIR / "target")
    broken = TransformersLanguageModel(model)
    model.lm_head.weight.data.fill_(float("nan"))
    catalog = catalog_of(ModelPair(target=broken, draft=broken, tokenizer=bundled_pair.tokenizer))
    with pytest.raises(Trouble):
        catalog.warm_up()
    catalog.close()
