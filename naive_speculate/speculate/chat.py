"""Conversations: their tokens in a tokenizer's chat template, and which of these have the words of
the messages."""

import re
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from naive_speculate.speculate.request import Prompt
from naive_speculate.text import check_unicode, one_line, tokens_between

_OPTIONS = {
    "add_generation_prompt", "continue_final_message", "tools", "documents", "chat_template"
}  # fmt: skip
_ALONE: Mapping[str, Any] = {"add_generation_prompt": True}


def messages_of(prompt: Prompt) -> list[dict[str, Any]]:
    """The messages of a conversation, or of a text, which is the user's. Raises `ValueError`."""
    turns = [prompt] if isinstance(prompt, str) else list(prompt)
    if not isinstance(prompt, str) and not any(isinstance(each, Mapping) for each in turns):
        raise ValueError(
            f"chat=True needs a prompt of text or messages, got {len(turns)} token ids"
        )
    if not prompt:
        raise ValueError("prompt is empty")
    return [_message(each, index) for index, each in enumerate(turns)]


def in_template(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] = _ALONE
) -> list[int]:
    """Token ids of a conversation, with the template's options, up to where its answer begins.
    Raises `ValueError`."""
    known = signature(tokenizer.apply_chat_template).parameters
    if taken := sorted(options.keys() & known.keys() - _OPTIONS):
        raise ValueError(f"chat_template_kwargs holds {taken[0]!r}, which no template reads")
    try:
        return list(_applied(tokenizer, messages, options))
    except Exception as error:  # a template is a program, which may fail in any way
        said = f"{type(error).__name__}: {one_line(error)}"
        raise ValueError(f"chat=True: the tokenizer's chat template fails: {said}") from None


def words_of(
    tokenizer: Any,
    prompt: Prompt,
    texts: Sequence[str],
    *,
    chat: bool,
    options: Mapping[str, Any] = _ALONE,
) -> list[tuple[int, int]] | None:
    """Which tokens have the words of a text, or of each message of a conversation: the index of
    the first one and the index after the last one. `texts`: those of the tokens, of which the
    first may be cut off. None if all have, or if the template changes the words.

    A template is filled in with marks in place of the words; what is between the marks is its own
    text.
    """
    whole = "".join(texts)
    if not chat:  # the tokenizer may begin with a token of its own
        added = isinstance(prompt, str) and whole != prompt and whole.endswith(prompt)
        return [tokens_between(texts, len(whole) - len(prompt), len(whole))] if added else None
    words: dict[str, str] = {}

    def marked(content: Any) -> Any:
        """Content with a mark in place of each of its texts."""
        if isinstance(content, list):
            return [
                marked(part) if isinstance(part, str) else {**part, "text": marked(part["text"])}
                for part in content
            ]
        if not content:
            return content
        mark = f"\ue000{len(words)}\ue000"
        words[mark] = content
        return mark

    messages = [
        each | {"content": marked(each["content"])} if "content" in each else each
        for each in messages_of(prompt)
    ]
    try:
        rendered = _applied(tokenizer, messages, options, tokenize=False)
    except Exception:  # it demands something of the words
        return None
    *parts, after = re.split("(\ue000[0-9]+\ue000)", rendered)
    between, marks = parts[::2], parts[1::2]
    if sorted(marks) != sorted(words):
        return None
    places = _places(whole, between, [words[mark] for mark in marks], after)
    return places and [tokens_between(texts, *place) for place in places]


def _places(
    whole: str, between: list[str], words: list[str], after: str
) -> list[tuple[int, int]] | None:
    """Where the words are, in characters: each after its own text of the template, the last ones
    before `after`. The beginning of `whole` may be cut off, so they are sought from its end."""
    places: list[tuple[int, int]] = []
    for before, content in zip(reversed(between), reversed(words), strict=True):
        if not whole.endswith(after):
            break
        whole = whole[: len(whole) - len(after)]
        for kept in (content, content.strip()):  # many templates drop spaces around the words
            if whole.endswith(before + kept) or (before + kept).endswith(whole):
                start = max(0, len(whole) - len(kept))
                break
        else:  # the tokenizer writes them in another way
            if len(places) < len(words) - 1 or not whole.startswith(before):
                return None
            start = len(before)
        places.append((start, len(whole)))
        whole, after = whole[:start], before
    return places[::-1] if after.endswith(whole) else None


def _applied(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    **form: Any,
) -> Any:
    return tokenizer.apply_chat_template(list(messages), return_dict=False, **options, **form)


def _message(message: Any, index: int) -> dict[str, Any]:
    """A message of a conversation, checked; a text is the user's."""
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    if not isinstance(message, Mapping):
        raise ValueError(f"prompt[{index}] must be a message, got {message!r:.80}")
    at = f"prompt[{index}]"
    if not isinstance(message.get("role"), str):
        raise ValueError(f"{at}['role'] must be text, got {message.get('role')!r:.80}")
    calls = message.get("tool_calls")
    if calls is not None and not (
        isinstance(calls, Sequence) and all(isinstance(each, Mapping) for each in calls)
    ):
        raise ValueError(f"{at}['tool_calls'] must be a list of calls, got {calls!r:.80}")
    content = message.get("content")
    if isinstance(content, list | tuple):
        content = list(content)
        for number, part in enumerate(content):
            text = part.get("text") if isinstance(part, Mapping) else part
            if not isinstance(text, str):
                raise ValueError(
                    f"{at}['content'][{number}] must be a part with text, got {part!r:.80}"
                )
            check_unicode(f"{at}['content']", text)
        return {**message, "content": content}
    if isinstance(content, str):
        check_unicode(f"{at}['content']", content)
    elif content is not None or not calls:
        raise ValueError(
            f"{at}['content'] must be text, a list of parts with text, or None next to"
            f" tool_calls, got {content!r:.80}"
        )
    return dict(message)
