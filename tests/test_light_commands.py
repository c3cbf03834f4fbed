"""Libraries are imported by what needs them only: looked at in fresh processes."""

import subprocess
import sys

from tests.engine_samples import VLLM_LOG


def test_light_commands_import_neither_torch_nor_gradio() -> None:
    look = (
        "import contextlib, io, sys\n"
        "from naive_speculate.__main__ import main\n"
        "import app\n"
        "for run, argv in ((main, ['--help']), (main, ['doctor', '--help']), (app.main, ['--help'])):\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        run(argv)\n"
        "main(['doctor'])\n"
        "print({'torch', 'transformers', 'gradio', 'numpy'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", look], input=VLLM_LOG, capture_output=True, text=True, check=True)
    assert ("Best k" in done.stdout, done.stdout.splitlines()[-1], done.stderr) == (True, "set()", "")
