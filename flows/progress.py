"""Bars on the terminal while a block runs.

Invariant: what they show is read from what is stored, not from the flow, so they also show what an
earlier, interrupted run of the same id has left.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

POLL_SECONDS = 1.0


@contextmanager
def live_progress(
    console: Console, look: Callable[[Progress], None], text_width: int
) -> Iterator[None]:
    """Call `look`, which sets the bars, every second and once more at the end."""
    progress = Progress(
        TextColumn(f"{{task.description:<{text_width}}}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
    )
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_SECONDS):
            look(progress)
            progress.refresh()

    watching = threading.Thread(target=watch, daemon=True)
    with progress:
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()
            look(progress)
