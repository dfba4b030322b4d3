"""The payloads of a client's calls: encoded before a request is sent, decoded by the channel."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tradewind.codec.payloads import Codec, CodecError, decode_text, encode_members, encode_text
from tradewind.grpc_engine.wrapping import WrappedChannel

logger = logging.getLogger("tradewind.codec")

Request = TypeVar("Request", bound=Message)

OBJECTS = frozenset({"inputs_json", "parameters_json", "set_json"})
"""Fields of requests in which each member is encoded."""
VALUES = frozenset({"result_json"})
"""Fields of requests that are encoded as a whole."""


def encoded(codec: Codec, message: Request) -> Request:
    """Return a message with its payloads encoded. Raises CodecError.

    Call this before a call, not in its channel: a retry must send the same bytes, though a codec may encode differently
    each time; and where a serializer raises, gRPC would send an empty message.
    """
    copy = type(message)()
    copy.CopyFrom(message)
    _encode(codec, copy)
    return copy


class DecodingChannel(WrappedChannel):
    """Decodes responses. It logs a value that it cannot decode and leaves it as it is: the rest may still be useful."""

    def __init__(self, channel: grpc.aio.Channel, codec: Codec) -> None:
        super().__init__(channel)
        self._codec = codec

    def _wrapped(
        self, make: Callable[..., Any], *args: Any, response_deserializer: Callable[[bytes], Any], **options: Any
    ) -> Any:
        def deserialize_and_decode(raw: bytes) -> Any:
            message = response_deserializer(raw)
            _decode(self._codec, message)
            return message

        return make(*args, response_deserializer=deserialize_and_decode, **options)


def _encode(codec: Codec, message: Message) -> None:
    for field, value in message.ListFields():
        if field.name in OBJECTS:
            _replace(message, field, value, lambda text: encode_members(codec, text))
        elif field.name in VALUES:
            _replace(message, field, value, lambda text: encode_text(codec, text))
        else:
            for inner in _messages(field, value):
                _encode(codec, inner)


def _decode(codec: Codec, message: Message) -> None:
    for field, value in message.ListFields():
        if field.name.endswith("_json"):
            _replace(message, field, value, lambda text: _decoded_or_raw(codec, text))
        else:
            for inner in _messages(field, value):
                _decode(codec, inner)


def _decoded_or_raw(codec: Codec, text: str) -> str:
    try:
        return decode_text(codec, text)
    except CodecError as error:
        logger.warning("a value is shown undecoded: %s", error)
        return text


def _replace(message: Message, field: FieldDescriptor, value: Any, change: Callable[[str], str]) -> None:
    if isinstance(value, str):
        setattr(message, field.name, change(value))
    elif field.type == FieldDescriptor.TYPE_STRING:
        value[:] = [change(each) for each in value]


def _messages(field: FieldDescriptor, value: Any) -> list[Message]:
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        return []
    if isinstance(value, Message):
        return [value]
    if hasattr(value, "values"):
        return [each for each in value.values() if isinstance(each, Message)]
    return list(value)
