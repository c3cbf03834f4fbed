"""Masks of tokens: grammars, schemas, word lists."""
