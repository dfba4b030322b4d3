"""Text that is packed for a field: what is compressed, and how decompression bombs are handled."""

import random
import string
import zlib
from base64 import b64encode

import pytest

from tradewind.scheduler.stores.redis.packed import COMPRESSED_FROM, pack, unpack


@pytest.mark.parametrize("text", ["", "x", "ü" * 100, "a" * (COMPRESSED_FROM - 1)])
def test_short_text_is_stored_plain(text: str) -> None:
    assert pack(text) == f"t{text}"
    assert unpack(pack(text), 10) == text


def test_long_text_is_compressed_if_that_makes_it_shorter() -> None:
    text = "price 101.5, " * 1000
    assert len(pack(text)) < len(text) / 10
    assert unpack(pack(text), len(text)) == text
    noise = "".join(random.Random(0).choices(string.printable, k=3000))
    assert pack(noise) == f"t{noise}"
    assert unpack(pack(noise), 10_000) == noise


def test_decompression_bomb_is_refused() -> None:
    bomb = "z" + b64encode(zlib.compress(b"0" * 50_000_000)).decode()
    with pytest.raises(ValueError, match="more than 65536 bytes"):
        unpack(bomb, 65536)


@pytest.mark.parametrize("stored", ["", "q", "z", "z!", "z" + b64encode(b"no deflate").decode(), pack("y" * 5000)[:-8]])
def test_malformed_packed_text_is_refused(stored: str) -> None:
    with pytest.raises(ValueError, match="packed text"):
        unpack(stored, 10_000)
