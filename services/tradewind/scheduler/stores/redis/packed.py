"""Packs text that may be large for a field: a letter for the format, then the text, plain or compressed."""

import zlib
from base64 import b64decode, b64encode

COMPRESSED_FROM = 1024
"""Shorter text is not compressed."""

_PLAIN, _DEFLATED = "t", "z"


def pack(text: str) -> str:
    """Return `text` as it is stored: compressed when that makes it shorter."""
    if len(text) >= COMPRESSED_FROM:
        # Base64, because scripts pass on text, not bytes.
        packed = b64encode(zlib.compress(text.encode(), 6)).decode()
        if len(packed) < len(text):
            return _DEFLATED + packed
    return _PLAIN + text


def unpack(stored: str, max_bytes: int) -> str:
    """Return the text that `pack` stored.

    Raises ValueError for text that `pack` did not make, and for compressed text that would be larger than `max_bytes`,
    without decompressing all of it.
    """
    format_letter, packed = stored[:1], stored[1:]
    if format_letter == _PLAIN:
        return packed
    if format_letter != _DEFLATED:
        raise ValueError(f'not packed text: it begins with "{format_letter}"')
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(b64decode(packed, validate=True), max_bytes)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"not packed text: {error}") from error
    if stream.unconsumed_tail or not stream.eof:
        raise ValueError(f"packed text of more than {max_bytes} bytes, or cut short")
    return text.decode()
