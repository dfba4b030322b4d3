"""Text that is packed for a field: what is compressed, and how decompression bombs are handled."""

import zlib
from base64 import b64encode

import pytest

from tradewind.scheduler.stores.redis.packed import WORTHWHILE, pack, unpack


@pytest.mark.parametrize("text", ["", "x", "ü" * 100, "a" * (WORTHWHILE - 1)])
def test_short_text_stays_as_it_is(text: str) -> None:
    assert pack(text) == f"t{text}"
    assert unpack(pack(text), 10) == text


def test_long_text_is_compressed_where_that_helps() -> None:
    text = "price 101.5, " * 1000
    assert len(pack(text)) < len(text) / 10
    assert unpack(pack(text), len(text)) == text
    noise = b64encode(bytes(zlib.crc32(bytes([at % 256, at // 256])) % 256 for at in range(3000))).decode()
    assert pack(noise)[0] in "tz"
    assert unpack(pack(noise), 10_000) == noise


def test_a_bomb_is_refused_before_it_is_whole() -> None:
    bomb = "z" + b64encode(zlib.compress(b"0" * 50_000_000)).decode()
    with pytest.raises(ValueError, match="more than 65536 bytes"):
        unpack(bomb, 65536)


@pytest.mark.parametrize("stored", ["", "q", "z", "z!", "z" + b64encode(b"no deflate").decode(), pack("y" * 5000)[:-8]])
def test_what_is_no_packed_text_is_told(stored: str) -> None:
    with pytest.raises(ValueError, match="packed text"):
        unpack(stored, 10_000)
