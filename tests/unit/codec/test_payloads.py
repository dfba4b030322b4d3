"""Encoded values in JSON text, and the codec that encrypts."""

import base64
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.codec import AesGcm, CodecError, codec_of, load_codec
from tradewind.codec.aes_gcm import aes_gcm
from tradewind.codec.payloads import decode_text, encode_members, encode_text

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
CODEC = AesGcm({"2026": KEY})
TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS.filter(lambda name: name != "$encoded"), inner),
    max_leaves=10,
)


@given(VALUES)
def test_encoded_value_is_decoded_at_any_depth(value: object) -> None:
    encoded = encode_text(CODEC, json.dumps(value))

    assert json.loads(decode_text(CODEC, encoded)) == value
    assert json.loads(decode_text(CODEC, f'[1, {{"in": {encoded}}}]')) == [1, {"in": value}]


@given(st.dictionaries(TEXTS.filter(lambda name: name != "$encoded"), VALUES))
def test_members_are_encoded_one_by_one_and_keep_their_names(members: dict[str, object]) -> None:
    encoded = encode_members(CODEC, json.dumps(members))

    assert json.loads(encoded).keys() == members.keys()
    assert all(value.keys() == {"$encoded"} for value in json.loads(encoded).values())
    assert json.loads(encode_members(CODEC, encoded)) == json.loads(encoded), "not twice"
    assert json.loads(decode_text(CODEC, encoded)) == members


@pytest.mark.parametrize(
    "member",
    [
        '{"$encoded": 1, "secret": "s3cret"}',
        '{"$encoded": "AAAA", "secret": "s3cret"}',
        '{"$encoded": {"secret": "s3cret"}}',
        '{"$encoded": ["s3cret"]}',
    ],
)
def test_near_miss_of_an_encoded_value_is_encoded(member: str) -> None:
    encoded = encode_members(CODEC, f'{{"a": {member}}}')

    assert "s3cret" not in encoded
    assert json.loads(encoded)["a"].keys() == {"$encoded"}


def test_encoded_value_is_recognised_in_any_json_notation() -> None:
    once = json.loads(encode_members(CODEC, '{"a": 1}'))

    assert json.loads(encode_members(CODEC, json.dumps(once, indent=2))) == once
    assert "s3cret" not in encode_members(CODEC, '{"a": {"$encoded": "s3cret", "$encoded": "AAAA"}}'), "the last counts"


@pytest.mark.parametrize("text", ["", "{}", '{"a": 1}', "no JSON", '"$encoded', '{"$encoded":1}'])
def test_text_without_encoded_values_stays_unchanged(text: str) -> None:
    assert decode_text(CODEC, text) == text


def test_numbers_keep_their_notation() -> None:
    number = "123456789012345678901234567890.10"

    assert decode_text(CODEC, encode_text(CODEC, number)) == number


def test_same_value_is_encrypted_differently_each_time() -> None:
    assert encode_text(CODEC, '"x"') != encode_text(CODEC, '"x"')


def test_decoding_fault_is_reported_without_the_value() -> None:
    encoded = encode_text(CODEC, '"hidden"')

    with pytest.raises(CodecError, match='with the key "2026", which this codec does not have'):
        decode_text(AesGcm({"2027": KEY}), encoded)
    with pytest.raises(CodecError, match="changed, or encrypted with a different key of the same name"):
        decode_text(AesGcm({"2026": OTHER}), encoded)
    with pytest.raises(CodecError, match="there is no codec to decode it: set TRADEWIND_CODEC"):
        decode_text(None, encoded)
    with pytest.raises(CodecError, match="encoded in a different way"):
        decode_text(CODEC, '{"$encoded": "!"}')
    with pytest.raises(CodecError, match="the codec cannot read the value: IndexError"):
        decode_text(CODEC, '{"$encoded": ""}')


def test_first_key_encrypts_and_old_key_still_decrypts() -> None:
    before = encode_text(CODEC, "1")
    rotated = AesGcm({"2027": OTHER, "2026": KEY})

    assert decode_text(rotated, before) == "1"
    with pytest.raises(CodecError, match="2027"):
        decode_text(CODEC, encode_text(rotated, "1"))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "a codec needs a key"),
        ({"short": b"x"}, 'key "short" has 1 bytes, not 16, 24 or 32'),
        ({"": KEY}, "the name of a key must have 1 to 255 bytes"),
        ({"n" * 256: KEY}, "the name of a key must have 1 to 255 bytes"),
    ],
)
def test_invalid_keys_are_refused(keys: dict[str, bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AesGcm(keys)


def test_codec_is_loaded_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"2027 {base64.b64encode(OTHER).decode()}\n\n2026 {base64.b64encode(KEY).decode()}\n")
    monkeypatch.setenv("TRADEWIND_CODEC_KEYS", str(keys))

    assert codec_of(None) is None
    monkeypatch.setenv("TRADEWIND_CODEC", "tradewind.codec.aes_gcm:aes_gcm")
    found = codec_of(None)
    assert found is not None
    assert found.decode(CODEC.encode(b"x")) == b"x"
    assert codec_of(CODEC) is CODEC
    with pytest.raises(TypeError, match=r"give AesGcm\(\), not the class AesGcm"):
        codec_of(AesGcm)  # type: ignore[arg-type]


def test_codec_may_be_an_object_or_a_class_in_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "own_codec.py").write_text(
        "class Reverse:\n"
        "    def encode(self, payload): return payload[::-1]\n"
        "    def decode(self, payload): return payload[::-1]\n"
        "reverse = Reverse()\n"
    )
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    monkeypatch.chdir(tmp_path)
    for name in ("Reverse", "reverse"):
        assert load_codec(f"own_codec:{name}").encode(b"abc") == b"cba"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("", "write it as MODULE:ATTRIBUTE"),
        ("json", "write it as MODULE:ATTRIBUTE"),
        ("json:", "write it as MODULE:ATTRIBUTE"),
        (":loads", "write it as MODULE:ATTRIBUTE"),
        ("no_such_module:x", "cannot import no_such_module"),
        ("json:absent", "module json has no absent"),
        ("json:loads", r'codec "json:loads": .* missing 1 required'),
        ("math:pi", "it must have the methods encode and decode"),
        ("json:JSONEncoder", "it must have the methods encode and decode"),
        ("json:JSONDecoder", "it must have the methods encode and decode"),
    ],
)
def test_name_that_is_not_a_codec_is_reported(target: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_codec(target)


def test_invalid_key_file_is_reported_without_its_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRADEWIND_CODEC_KEYS", raising=False)
    with pytest.raises(ValueError, match="TRADEWIND_CODEC_KEYS must name the file"):
        aes_gcm()
    monkeypatch.setenv("TRADEWIND_CODEC_KEYS", str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="No such file"):
        aes_gcm()
    keys = tmp_path / "keys"
    keys.write_text("2026 not-base64!\n")
    monkeypatch.setenv("TRADEWIND_CODEC_KEYS", str(keys))
    with pytest.raises(ValueError, match="line 1: must be a name") as caught:
        aes_gcm()
    assert "not-base64" not in str(caught.value)


@pytest.mark.parametrize(
    "line", ["{key}", "2026", "{key} 2026", "{key} main", "2026 é", "2026 {key} more", "2026 !{key}", "a {key}"]
)
def test_fault_in_key_file_does_not_show_the_line(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = base64.b64encode(KEY).decode()
    keys = tmp_path / "keys"
    keys.write_text(f"a\t{key}\n{line.format(key=key)}\n", encoding="utf-8")
    monkeypatch.setenv("TRADEWIND_CODEC_KEYS", str(keys))
    with pytest.raises(ValueError, match=f"{keys}, line 2: ") as caught:
        aes_gcm()
    assert key not in str(caught.value)


@pytest.mark.parametrize("line", ["import json; json.absent", "raise RuntimeError('no')", "("])
def test_failing_import_of_a_codec_module_is_reported(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken_codec.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"cannot import broken_codec: (Attribute|Runtime|Syntax)Error: "):
        load_codec("broken_codec:codec")
