"""Definitions of flows from files, stdin and Python modules."""

from pathlib import Path

from tradewind.cli.parsing import read_stdin
from tradewind.flow import Flow, parse_flow, read_flow


def read_definition(source: str) -> Flow:
    """Read a flow from a JSON or YAML file, "-" for stdin, or take the Flow that `module:attribute` names.

    Raises OSError, or ValueError, which says where the source is not a valid flow.
    """
    if source == "-":
        return parse_flow(read_stdin(), "flow", "<stdin>")
    path = Path(source)
    if ":" in source and not path.exists():
        from tradewind.worker import WorkerError
        from tradewind.worker.loading import load_flow

        try:
            return load_flow(source)
        except WorkerError as error:
            raise ValueError(str(error)) from None
    if source.isidentifier() and not path.exists():
        raise ValueError(f"there is no file {source}; of a module, name the flow as well, such as {source}:flow")
    if path.suffix == ".py":
        raise ValueError(f"{source} is Python: name the module and its flow, such as {path.stem}:flow")
    return read_flow(source)


def refuse_swapped(command: str, name: str, source: str) -> None:
    """Raise ValueError when the name of a flow is that of a file, and the source is not."""
    if source != "-" and Path(name).is_file() and not Path(source).exists():
        raise ValueError(f"{name} is a file: name the flow first, as in: tradewind flow {command} {source} {name}")
