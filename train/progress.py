"""One line a minute about a long piece of work: how much is done, how fast, and how long it will
take."""

import time


class Progress:
    """Counts work of one stage.

    Args:
        stage: Its name.
        total: Amount of work.
        unit: What is counted.
        done: Amount done in earlier runs.
    """

    EVERY = 30.0
    """Seconds between lines."""

    def __init__(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        self.stage, self.total, self.unit, self.done = stage, total, unit, done
        self._first, self._began, self._printed = done, time.monotonic(), time.monotonic()

    def add(self, amount: int, note: str = "") -> None:
        """Count work; prints a line when the last one is old."""
        self.done += amount
        if time.monotonic() - self._printed >= self.EVERY:
            self.print(note)

    def print(self, note: str = "") -> None:
        """Print a line now."""
        self._printed = time.monotonic()
        rate = (self.done - self._first) / max(1e-9, self._printed - self._began)
        left = (
            f"{max(0, self.total - self.done) / rate / 60:.0f} min left"
            if rate
            else "time left unknown"
        )
        print(
            f"{self.stage}: {self.done:,} of {self.total:,} {self.unit}, {rate:.0f}/s,"
            f" {left}{note and ', ' + note}",
            flush=True,
        )
