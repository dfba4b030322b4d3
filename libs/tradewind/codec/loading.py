"""Finds a codec by name, for commands and the environment."""

import importlib
import os
import sys
from typing import cast

from tradewind.codec.payloads import Codec

CODEC_VARIABLE = "TRADEWIND_CODEC"


def codec_of(given: Codec | None) -> Codec | None:
    """Return the given codec, or else the one that TRADEWIND_CODEC names. Raises ValueError, TypeError for no codec."""
    if given is None:
        target = os.environ.get(CODEC_VARIABLE)
        return load_codec(target) if target else None
    if isinstance(given, type):
        raise TypeError(f"a codec must be an object: give {given.__name__}(), not the class {given.__name__}")
    if not _is_codec(given):
        raise TypeError(
            f"a codec must have the methods encode and decode, which a value of type {type(given).__name__} has not; "
            'load_codec("module:attribute") returns a codec by its name'
        )
    return given


def load_codec(target: str) -> Codec:
    """Import `module:attribute` and return that codec, or the one that this function or class returns.

    Raises ValueError, which says what is wrong.
    """
    name, colon, attribute = target.partition(":")
    if not (name and colon and attribute):
        raise ValueError(f'codec "{target}": write it as MODULE:ATTRIBUTE, such as tradewind.codec.aes_gcm:aes_gcm')
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise ValueError(f'codec "{target}": cannot import {name}: {type(error).__name__}: {error}') from error
    try:
        found = getattr(module, attribute)
    except AttributeError:
        raise ValueError(f'codec "{target}": module {name} has no {attribute}') from None
    if isinstance(found, type) or (callable(found) and not hasattr(found, "encode")):
        try:
            found = found()
        except TypeError as error:
            raise ValueError(f'codec "{target}": {error}') from error
    if not _is_codec(found):
        raise ValueError(f'codec "{target}": it must have the methods encode and decode')
    return cast(Codec, found)


def _is_codec(found: object) -> bool:
    # A class has these methods too, and so has text; but they are not made yet, or take something else.
    if isinstance(found, type | str | bytes):
        return False
    return callable(getattr(found, "encode", None)) and callable(getattr(found, "decode", None))
