"""Drafting with a model that has another tokenizer."""
