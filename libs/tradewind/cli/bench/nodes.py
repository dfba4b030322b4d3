"""The benchmark's nodes: no-ops that pass on a small JSON object and increment its number, so a lost value shows."""

from tradewind.worker import Gather, node

Number = dict[str, int]


@node("bench_increment", outputs=["value"])
async def increment(value: Number | None = None) -> Number:
    """Return the number received plus one, or 1 if none was received."""
    return {"n": value["n"] + 1 if value else 1}


@node("bench_eager_increment", outputs=["value"], eager=True)
async def eager_increment(value: Number | None = None) -> Number:
    """Do the same as bench_increment; a worker continues with this node by itself."""
    return await increment(value)


@node("bench_join", outputs=["value"])
async def join(values: Gather[Number]) -> Number:
    """Return the sum of the numbers received."""
    return {"n": sum(value["n"] for value in values)}
