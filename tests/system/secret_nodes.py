"""Nodes that do everything with a secret that nodes should not do."""

from tradewind.worker import Context, node


@node("logged", outputs=["length"])
async def logged(ctx: Context, key: str, shown: str) -> int:
    """Write the secret into the log and the progress."""
    ctx.log.info("the key is %s", key, key=key)
    await ctx.progress(50, f"with {key}", step=f"using {key}")
    return len(key)


@node("raised", outputs=["nothing"])
def raised(ctx: Context, length: int, key: str) -> None:
    """Fail with the secret in the message, a cause, and the traceback."""
    try:
        raise KeyError(key)
    except KeyError as error:
        raise ValueError(f"the server refused {key!r}") from error


@node("in_process", outputs=["nothing"], process=True)
def in_process(ctx: Context, length: int, key: str) -> None:
    """Log the secret and fail with it, in a process."""
    ctx.log.warning("the key is still %s", key)
    raise RuntimeError(f"no such account: {key}")


@node("emitted", outputs=["key"])
async def emitted(length: int, key: str) -> list[str]:
    """Emit the secret."""
    return [f"Bearer {key}"]
