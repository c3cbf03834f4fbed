"""Values by name, some of which are imported when they are used."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """Values by name. One that is written as "module:NAME" is imported on first use."""

    def __init__(self, entries: Mapping[str, T | str]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        value = self._entries[name]
        if isinstance(value, str):
            module, _, attribute = value.partition(":")
            value = self._entries[name] = getattr(import_module(module), attribute)
        return value

    def __setitem__(self, name: str, value: T) -> None:
        self._entries[name] = value

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
