"""Lines at the foot of a terminal, redrawn in place, while what else is said scrolls above them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text


class Foot:
    """Shows lines on a terminal's stderr until it is closed, and again whatever becomes of them.

    What threads say at the same time is written one after the other. rich asks how many lines stand there, and writes
    over them, in two steps: a thread of its own that redraws them between the two changes their number, and lines above
    them would be overwritten.

    Args:
        drawn: the lines for a terminal of so many columns and lines.
        redraws_per_second: how often they are drawn again.
    """

    def __init__(self, drawn: Callable[[int, int], Iterable[Text]], redraws_per_second: float = 2) -> None:
        from rich.console import Console, Group
        from rich.live import Live

        writing = threading.RLock()  # a signal's handler may speak while its thread does

        class OneAfterTheOther(Console):
            def __enter__(self) -> Console:
                writing.acquire()
                return super().__enter__()

            def __exit__(self, *error: object) -> None:
                try:
                    super().__exit__(*error)
                finally:
                    writing.release()

        def lines() -> Any:
            return Group(*drawn(self._console.width, self._console.height))

        self._console = OneAfterTheOther(stderr=True, highlight=False, emoji=False)
        self._live = Live(
            console=self._console,
            get_renderable=lines,
            auto_refresh=False,
            redirect_stdout=False,  # results go there, and none while this is shown
        )
        self._every = 1 / redraws_per_second
        self._closed = threading.Event()
        with self._console:
            self._live.start(refresh=True)
            self._console.show_cursor()  # hidden, it would stay so on the terminal of a sweep that is killed
        threading.Thread(target=self._redraw_again_and_again, name="foot", daemon=True).start()

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return self._console.width

    def say(self, line: str) -> None:
        """A line above the others, whole."""
        self._console.print(line, markup=False, soft_wrap=True)

    def redraw(self) -> None:
        """Draw the lines as they are now."""
        with self._console:
            self._live.refresh()

    def close(self) -> None:
        """Draw the lines for the last time, and leave the terminal as it was."""
        self._closed.set()
        with self._console:
            self._live.stop()

    def _redraw_again_and_again(self) -> None:
        while not self._closed.wait(self._every):
            self.redraw()
