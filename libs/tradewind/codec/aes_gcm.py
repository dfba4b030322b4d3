"""Encrypts payloads with AES-GCM, with keys that can be rotated."""

import base64
import os
from collections.abc import Mapping
from pathlib import Path

from tradewind.codec.payloads import CodecError

KEYS_VARIABLE = "TRADEWIND_CODEC_KEYS"
_NONCE = 12
_LENGTHS = (16, 24, 32)


class AesGcm:
    """A codec that encrypts with the first of `keys`, each of 16, 24 or 32 bytes; every key decrypts what it encrypted.

    To replace a key, put a new one first, and drop the old one once nothing that it encrypted is kept. Raises
    ValueError for invalid keys.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not keys:
            raise ValueError("a codec needs a key")
        for name, key in keys.items():
            if not 0 < len(name.encode()) < 256:
                raise ValueError("the name of a key must have 1 to 255 bytes")
            if len(key) not in _LENGTHS:
                raise ValueError(f'key "{name}" has {len(key)} bytes, not 16, 24 or 32')
        self._ciphers = {name: AESGCM(key) for name, key in keys.items()}
        self._current = next(iter(keys))

    def encode(self, payload: bytes) -> bytes:
        """Return the key's name, a nonce, and the payload encrypted under both."""
        name, nonce = self._current.encode(), os.urandom(_NONCE)
        return bytes([len(name)]) + name + nonce + self._ciphers[self._current].encrypt(nonce, payload, name)

    def decode(self, payload: bytes) -> bytes:
        """Return what was encrypted. Raises CodecError when its key is not known, or it was changed."""
        from cryptography.exceptions import InvalidTag

        end = 1 + payload[0]
        name = payload[1:end]
        cipher = self._ciphers.get(name.decode(errors="replace"))
        if cipher is None:
            raise CodecError(
                f'the value is encrypted with the key "{name.decode(errors="replace")}", which this codec does not have'
            )
        try:
            return cipher.decrypt(payload[end : end + _NONCE], payload[end + _NONCE :], name)
        except InvalidTag:
            raise CodecError("the value was changed, or encrypted with a different key of the same name") from None


def aes_gcm() -> AesGcm:
    """Return the codec with the keys in the file that TRADEWIND_CODEC_KEYS names: lines of name, space, base64.

    Raises ValueError, which says what is wrong with the file without showing a key.
    """
    path = os.environ.get(KEYS_VARIABLE)
    if not path:
        raise ValueError(f"{KEYS_VARIABLE} must name the file with the keys")
    keys: dict[str, bytes] = {}
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}; check {KEYS_VARIABLE}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            name, key = line.decode().split()
            decoded = base64.b64decode(key, validate=True)
        except ValueError:
            raise ValueError(f"{path}, line {number}: must be a name, a space and a key in base64") from None
        # If name and key are swapped, the name is the key: do not show it.
        if len(decoded) not in _LENGTHS:
            raise ValueError(f"{path}, line {number}: the key has {len(decoded)} bytes, not 16, 24 or 32")
        if name in keys:
            raise ValueError(f"{path}, line {number}: an earlier line has the same name")
        keys[name] = decoded
    return AesGcm(keys)
