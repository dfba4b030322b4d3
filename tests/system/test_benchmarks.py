"""Benchmarks that write records themselves: scripts must find what they would have written themselves."""

from benchmarks import claims


async def test_claims_benchmark_finds_the_records_it_loads() -> None:
    medians = await claims.compare((1_000, 1_500), 1)
    assert list(medians) == [1_000, 1_500]
    assert min(medians.values()) > 0
