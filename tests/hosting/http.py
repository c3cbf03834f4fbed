"""What tests ask the server by."""

import urllib.request


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()
