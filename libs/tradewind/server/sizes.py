"""How large texts are where they are sent or stored."""


def size_of(text: str) -> int:
    """Return the bytes of a text in UTF-8; nearly all are ASCII, which need not be encoded for that."""
    return len(text) if text.isascii() else len(text.encode())
