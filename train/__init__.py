"""How the bundled target and draft models are made: tokenizer, stories, target, distilled draft, export.

One command does all of it: ``python -m train --corpus FOLDER --work FOLDER --out assets/pair``.
"""
