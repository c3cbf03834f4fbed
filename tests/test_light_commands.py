"""Libraries are imported by what needs them only: looked at in fresh processes."""

import subprocess
import sys


def printed(program: str) -> str:
    """What a program prints in a fresh process."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_light_commands_import_neither_torch_nor_gradio() -> None:
    look = (
        "import contextlib, io, sys\n"
        "from naive_speculate.__main__ import main\n"
        "import app\n"
        "for run, argv in ((main, ['--help']), (main, ['doctor', '--help']), (app.main, ['--help'])):\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        run(argv)\n"
        "print({'torch', 'transformers', 'gradio', 'numpy'} & set(sys.modules))\n"
    )
    assert printed(look) == "set()\n"


def test_decoding_imports_nothing_heavy_and_nothing_optional() -> None:
    look = (
        "import sys\n"
        "import naive_speculate.serving\n"
        "from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair\n"
        "SpeculativeDecoder(load_pair()).generate('Once upon a time', SamplingParams(max_tokens=3))\n"
        "heavy = {'transformers.modeling_utils', 'transformers.core_model_loading', 'torch._dynamo'}\n"
        "optional = {'gradio', 'plotly', 'pandas', 'ray', 'xgrammar', 'llama_cpp', 'scipy', 'rich', 'playwright'}\n"
        "print((heavy | optional) & set(sys.modules))\n"
    )
    assert printed(look) == "set()\n"
