"""A line on a terminal that counts while something runs; nothing otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from makegood.cli import output


class Counting:
    """``show`` adds counts; names are told apart by what follows their last dot."""

    def __init__(self, title: str, words: Sequence[str], *, show: bool, total: int | None = None) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=output.people, disable=not show or not output.people.is_terminal)
        self._task = self._bar.add_task(title, total=total, said="")
        self._words = words
        self._seen: Counter[str] = Counter()

    def __enter__(self) -> Counting:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def reach(self, counts: Counter[str], position: float) -> None:
        """Counts, and how far of the total it is now."""
        self.show(counts)
        self._bar.update(self._task, completed=position)

    def show(self, counts: Counter[str], *, advance: float = 0) -> None:
        for name, n in counts.items():
            self._seen[name.rpartition(".")[2]] += n
        said = "  ".join(f"{self._seen[word]:,} {word}" for word in self._words)
        self._bar.update(self._task, advance=advance, said=said)
