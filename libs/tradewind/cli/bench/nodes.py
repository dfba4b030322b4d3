"""The benchmark's nodes: no-ops that pass a small JSON object and raise its number, so that a lost value shows."""

from tradewind.worker import Gather, node

Number = dict[str, int]


@node("bench_increment", outputs=["value"])
async def increment(value: Number | None = None) -> Number:
    """Return the number that came, raised by one; 1 where none came."""
    return {"n": value["n"] + 1 if value else 1}


@node("bench_eager_increment", outputs=["value"], eager=True)
async def eager_increment(value: Number | None = None) -> Number:
    """As bench_increment; a worker goes on with it by itself."""
    return await increment(value)


@node("bench_join", outputs=["value"])
async def join(values: Gather[Number]) -> Number:
    """Return the sum of the numbers that came."""
    return {"n": sum(value["n"] for value in values)}
