"""The offset between the store's clock and this machine's."""

from hypothesis import given
from hypothesis import strategies as st

from tradewind.server.store_time import StoreTime


def test_offset_is_zero_before_the_first_observation() -> None:
    assert StoreTime().offset_us == 0


def test_quick_answer_narrows_the_offset_of_a_slow_one() -> None:
    time = StoreTime()
    time.observe(5_009_000, asked_us=0, answered_us=10_000)
    assert time.offset_us == 5_004_000
    time.observe(6_000_150, asked_us=1_000_000, answered_us=1_000_300)
    assert abs(time.offset_us - 5_000_000) <= 150


def test_offset_starts_over_after_a_clock_was_set() -> None:
    time = StoreTime()
    assert time.observe(1000, asked_us=900, answered_us=1100) == 0
    assert time.observe(2000, asked_us=1900, answered_us=2100) == 0
    assert time.observe(9_002_000, asked_us=1900, answered_us=2100) == 9_000_000 - 200

    assert abs(time.offset_us - 9_000_000) <= 100
    assert time.observe(2000, asked_us=1900, answered_us=2100) == 9_000_000 - 200


@given(
    offset=st.integers(-(10**9), 10**9),
    trips=st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 50_000)), min_size=1, max_size=20),
)
def test_offset_is_as_exact_as_the_quickest_answer(offset: int, trips: list[tuple[int, int]]) -> None:
    time = StoreTime()
    asked = 10**12
    for there, back in trips:
        time.observe(asked + there + offset, asked, asked + there + back)
        asked += 1_000_000

    assert abs(time.offset_us - offset) <= min(there + back for there, back in trips)
