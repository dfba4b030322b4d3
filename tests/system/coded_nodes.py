"""Nodes that work on payloads, in each of the ways that a worker can run them."""

from tradewind.worker import Context, Gather, node


@node("words", outputs=["words"])
async def words(ctx: Context, start: str, count: int = 2) -> list[str]:
    """Emit words, and save the latest with the flow."""
    made = [f"{start}-{at}" for at in range(count)]
    await ctx.flow_memory.set("latest", made[-1])
    await ctx.set_result({"last": made[-1]})
    return made


@node("join", outputs=["text"])
def join(words: list[str]) -> str:
    """Join words, in a thread."""
    return " ".join(words)


@node("shout", outputs=["text"], process=True)
def shout(ctx: Context, text: str) -> str:
    """Write words in upper case, in a process, using what the flow has saved."""
    return f"{text} {ctx.flow_memory.get('latest')}".upper()


@node("all", outputs=["texts"])
async def gather(texts: Gather[str]) -> list[str]:
    """Emit the input."""
    return list(texts)
