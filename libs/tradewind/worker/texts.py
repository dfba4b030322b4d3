"""Texts as the contract accepts them: valid UTF-8, cut to a limit of bytes; and suggestions for misspelt names."""

from collections.abc import Iterable

from tradewind.server.nearest_name import NearestName

MESSAGE_BYTES = 4 * 1024
TRACEBACK_BYTES = 16 * 1024
LOG_BYTES = 8 * 1024
PROGRESS_BYTES = 1024
STEP_BYTES = 256

_CUT = " ... "


def clip(text: str, limit: int) -> str:
    """Return `text` in at most `limit` bytes of UTF-8, cut at its end; lone surrogates become escapes."""
    if text.isascii():
        return text if len(text) <= limit else text[: limit - len(_CUT)] + _CUT
    raw = text.encode(errors="backslashreplace")
    if len(raw) <= limit:
        return raw.decode()
    return raw[: limit - len(_CUT)].decode(errors="ignore") + _CUT


def clip_middle(text: str, limit: int) -> str:
    """Return `text` in at most `limit` bytes of UTF-8, cut in the middle; the end keeps more than the beginning.

    Each line is first cut to a quarter of the limit, so that one long line does not displace all others.
    """
    raw = text.encode(errors="backslashreplace")
    if len(raw) <= limit:
        return raw.decode()
    raw = "\n".join(clip(line, limit // 4) for line in text.split("\n")).encode()
    if len(raw) <= limit:
        return raw.decode()
    head = limit // 4
    tail = limit - head - len("\n ... \n")
    return raw[:head].decode(errors="ignore") + "\n ... \n" + raw[-tail:].decode(errors="ignore")


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean "x"?` for the nearest of `names`, or the list of all names to choose from."""
    known = sorted(names)
    return NearestName(known).hint(name, f"; choose from {', '.join(known)}" if known else "; there are none")
