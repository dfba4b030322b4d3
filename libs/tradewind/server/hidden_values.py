"""Placeholders in JSON for values that only workers can read: `{"$secret": "name"}` and `{"$encoded": "<base64>"}`."""

SECRET_KEY, ENCODED_KEY = "$secret", "$encoded"


def is_encoded(value: object) -> bool:
    """Say whether a value stands for one that a codec has encoded: an object of this one key, with a text."""
    return _holds_text(value, ENCODED_KEY)


def is_hidden(value: object) -> bool:
    """Say whether a value stands for one that only workers can read, a secret or an encoded one."""
    return _holds_text(value, SECRET_KEY) or is_encoded(value)


def _holds_text(value: object, key: str) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(key), str)
