"""How messages show text given by somebody else."""

import json

_SHOWN_CHARACTERS = 60


def quoted(text: str) -> str:
    """Return `text` in double quotes, escaped, and shortened if it is long."""
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "..."
    return json.dumps(text, ensure_ascii=False)
