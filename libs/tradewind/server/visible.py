"""Says what acts on a terminal: colours do; what users and nodes write must not write over other people's screens."""

import re

_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters other than tab and newline, and those that turn the direction of the text that follows."""


def visible(text: str) -> str:
    """Return a text with these characters escaped as in Python, such as `\\x1b`."""
    return _ACTING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_json(text: str) -> str:
    """Return JSON text, whose strings may hold such characters, with these escaped as in JSON."""
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
