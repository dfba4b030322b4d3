"""How deeply JSON may be nested: the same for every Python, whose decoders go only as deep as their stack allows."""

from itertools import accumulate

MAX_LEVELS = 500
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_OTHERS = bytes(set(range(256)) - set(_STEPS))


def check_depth(text: str) -> None:
    """Raise RecursionError, as decoders do, when `text`, which must be JSON, is nested more than 500 levels deep."""
    if len(text) <= MAX_LEVELS or text.count("[") + text.count("{") <= MAX_LEVELS:
        return
    unescaped = text.replace("\\\\", "").replace('\\"', "")
    outside_strings = "".join(unescaped.split('"')[::2])
    brackets = outside_strings.encode().translate(None, _OTHERS)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_LEVELS:
        raise RecursionError(f"it is nested more than {MAX_LEVELS} levels deep")
