"""Encoded values within JSON text: `{"$encoded": "<base64>"}` stands for a value that only a codec can read."""

import base64
import binascii
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from tradewind.server.hidden_values import ENCODED_KEY, is_encoded

_MARKER = f'"{ENCODED_KEY}"'


class Codec(Protocol):
    """Turns the JSON text of a value into other bytes, and back. Used from any thread."""

    def encode(self, payload: bytes) -> bytes:
        """Return what is kept instead of `payload`. May raise any exception when it cannot."""
        ...

    def decode(self, payload: bytes) -> bytes:
        """Return what `encode` was given. May raise any exception for what it cannot read."""
        ...


class CodecError(ValueError):
    """A value cannot be encoded, or cannot be read here; the message says why, and shows nothing of the value."""


def encode_text(codec: Codec, text: str) -> str:
    """Return JSON text that stands for a whole value. Raises CodecError when the codec cannot encode it."""
    try:
        payload = base64.b64encode(codec.encode(text.encode())).decode()
    except CodecError:
        raise
    except Exception as error:
        # Its message may quote its argument, so show only the type.
        raise CodecError(f"the codec cannot encode the value: {type(error).__qualname__}") from None
    return f'{{"{ENCODED_KEY}":"{payload}"}}'


def encode_members(codec: Codec, text: str) -> str:
    """Return the text of a JSON object with each member encoded; the names stay.

    A member that is encoded already keeps its value, and text that is not an object stays as it is. Raises CodecError.
    """
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return text
    return msgspec.json.encode(
        {name: _encoded_member(codec, bytes(member)) for name, member in members.items()}
    ).decode()


def decode_text(codec: Codec | None, text: str) -> str:
    """Return JSON text with every encoded value, wherever it stands, replaced by its content.

    Raises CodecError when a value cannot be read, or there is no codec.
    """
    if _MARKER not in text:
        return text
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return msgspec.json.encode(_decoded_value(codec, value)).decode()


def _encoded_member(codec: Codec, text: bytes) -> object:
    with suppress(msgspec.DecodeError):
        value = msgspec.json.decode(text)
        if is_encoded(value):
            # Written anew, because a key that is given twice would keep its first value in clear.
            return value
    return msgspec.Raw(encode_text(codec, text.decode()).encode())


def _decoded_value(codec: Codec | None, value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded_value(codec, each) for each in value]
    if not isinstance(value, dict):
        return value
    if is_encoded(value):
        # The text stays as it was written, including numbers beyond 2^53.
        return msgspec.Raw(_decoded_text(codec, value[ENCODED_KEY]))
    return {name: _decoded_value(codec, each) for name, each in value.items()}


def _decoded_text(codec: Codec | None, encoded: str) -> bytes:
    if codec is None:
        raise CodecError("the value is encoded, and there is no codec to decode it: set TRADEWIND_CODEC, or pass one")
    try:
        text = codec.decode(base64.b64decode(encoded, validate=True))
        msgspec.json.decode(text)
    except CodecError:
        raise
    except (binascii.Error, msgspec.DecodeError):
        raise CodecError("this codec cannot read the value: it was encoded in a different way") from None
    except Exception as error:
        # Its message may quote its argument, so show only the type.
        raise CodecError(f"the codec cannot read the value: {type(error).__qualname__}") from None
    return text
