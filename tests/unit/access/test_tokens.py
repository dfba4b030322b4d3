"""Tokens, and the digests by which the store knows them."""

import pytest

from tradewind.server.access.tokens import digest_of, new_token


def test_tokens_are_random_and_not_part_of_their_digests() -> None:
    tokens = {new_token("ann") for _ in range(50)}
    assert len(tokens) == 50
    for token in tokens:
        digest = digest_of(token)
        assert digest is not None
        assert token not in digest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tw_00_" + "a" * 44,
        "tw_zz_" + "a" * 43,
        # There are sixteen partitions.
        "tw_10_" + "a" * 43,
    ],
)
def test_malformed_token_has_no_digest(text: str) -> None:
    assert digest_of(text) is None
