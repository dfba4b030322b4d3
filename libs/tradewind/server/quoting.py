"""How messages show a text that somebody gave."""

import json

_SHOWN_CHARACTERS = 60


def quoted(text: str) -> str:
    """Return `text` in double quotes, escaped, and cut when it is long."""
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "..."
    return json.dumps(text, ensure_ascii=False)
