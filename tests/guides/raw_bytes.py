"""Guides over a vocabulary of single bytes, so that a text's tokens are its bytes."""

import torch

from naive_speculate.guides.guided import GrammarCompiler, GuidedDecodingParams

END = 256


class Bytes:
    """Every byte is a token; one more ends the text."""

    decoded_vocab = (*(bytes([byte]) for byte in range(256)), b"")
    stop_token_ids = (END,)


COMPILER = GrammarCompiler(Bytes(), END + 1)


def allows(guide: dict, text: str) -> bool:
    """Whether a guide allows exactly this text."""
    mask = COMPILER.compile(GuidedDecodingParams(**guide))
    history: list[int] = []
    for token in [*text.encode(), END]:
        scores = torch.zeros(END + 1)
        mask.apply(scores, history)
        if scores[token] == -torch.inf:
            return False
        history.append(token)
    return True
