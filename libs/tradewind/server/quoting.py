"""How messages show text given by somebody else."""

import json

_SHOWN_CHARACTERS = 60


def quoted(text: str) -> str:
    """Return `text` in double quotes, escaped, and shortened if it is long."""
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "..."
    return json.dumps(text, ensure_ascii=False)


def listed(names: list[str]) -> str:
    """Return quoted words joined for a sentence, at most twenty: enough for every field of a flow or a node."""
    rest = len(names) - 20
    text = ", ".join(quoted(name) for name in names[:20])
    return f"{text} and {rest} more" if rest > 0 else text
