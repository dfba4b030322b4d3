"""Definitions of flows from files and stdin."""

import sys

from tradewind.flow import Flow, parse_flow, read_flow


def read_definition(file: str, name: str | None = None) -> Flow:
    """Read a flow from a JSON or YAML file, "-" for stdin.

    Raises FlowFileError, which says where in the file it is no flow, or OSError.
    """
    if file == "-":
        return parse_flow(sys.stdin.read(), name or "flow", "<stdin>")
    return read_flow(file, name)
