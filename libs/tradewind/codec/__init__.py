"""Codecs for payloads, such as encryption: clients and workers apply them, servers keep payloads unopened."""

import tradewind.grpc_engine  # noqa: F401 - before grpc
from tradewind.codec.aes_gcm import AesGcm
from tradewind.codec.loading import codec_of, load_codec
from tradewind.codec.payloads import Codec, CodecError

__all__ = ["AesGcm", "Codec", "CodecError", "codec_of", "load_codec"]
