"""Finds the name most likely meant by a mistyped one."""

import difflib
import heapq
from collections.abc import Iterable
from itertools import takewhile
from operator import eq

from tradewind.server.quoting import listed, quoted

_LONGEST_NAME = 128
_SHORTLIST = 50
_MAX_COMPARISONS = 200_000


class NearestName:
    """Suggests one of `names`, as long as that stays cheap: one that differs only in case, else difflib's choice.

    difflib takes some 20 us per name, so of many names only the fifty that share the most of their beginning and end
    with the word are compared; after looking at 200 000 names, it suggests nothing more.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._comparisons_left = max(_MAX_COMPARISONS, len(self._names))

    def find(self, word: str) -> str | None:
        """Return the nearest name, or None when none is near or the effort is spent."""
        if not word or len(word) > _LONGEST_NAME or self._comparisons_left < len(self._names):
            return None
        self._comparisons_left -= len(self._names)
        names = self._names
        plain = word.casefold()
        for name in names:
            if name.casefold() == plain:
                return name
        if len(names) > _SHORTLIST:
            names = heapq.nlargest(_SHORTLIST, names, key=lambda name: _shared_ends(word, name))
        found = difflib.get_close_matches(word, names, n=1)
        return found[0] if found else None

    def hint(self, word: str, default: str = "") -> str:
        """Return `; did you mean "name"?`, or `default` when nothing is near."""
        name = self.find(word)
        return default if name is None else f"; did you mean {quoted(name)}?"

    def hint_or_all(self, word: str, subject: str = "it has") -> str:
        """Return `; did you mean "name"?`, or all names in order: `; it has "a", "b"`, or `; it has none`."""
        return self.hint(word, f"; {subject} {listed(sorted(self._names)) or 'none'}")


def _shared_ends(word: str, name: str) -> int:
    """Return how many characters two words share at their beginning and their end, less the difference in length."""
    beginning: int = sum(takewhile(bool, map(eq, word, name)))
    end: int = sum(takewhile(bool, map(eq, reversed(word), reversed(name))))
    return beginning + end - abs(len(word) - len(name))
