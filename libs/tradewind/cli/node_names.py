"""Names of nodes as people type them."""

from collections.abc import Iterable
from difflib import get_close_matches


def no_node(node: str, known: Iterable[str]) -> str:
    """Return what is to be said of something that has no such node: `has no node "modle"; did you mean "model"?`."""
    near = get_close_matches(node, list(known), n=1)
    return f'has no node "{node}"' + (f'; did you mean "{near[0]}"?' if near else "")
