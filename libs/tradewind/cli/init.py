"""`tradewind init`: a small project to begin with."""

import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from tradewind.cli.session import Session, blocking

_NEXT = (
    "tradewind up                                # all services, in a shell of its own",
    "tradewind worker nodes                      # a worker, in another",
    "tradewind flow register hello nodes:flow",
    "tradewind flow run hello --wait             # one cycle now",
    "tradewind flow start hello                  # a cycle every 5 s",
)


@blocking
def init(
    session: Session,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory for the project; created if it does not exist.")
    ] = Path(),
) -> None:
    """Write a small project to begin with.

    It has two node types, a flow of them and a test. Existing files are not overwritten.
    """
    starter = resources.files("tradewind.cli") / "starter"
    texts = {directory / file.name.removesuffix(".txt"): file.read_text(encoding="utf-8") for file in starter.iterdir()}
    for place in (directory, *directory.parents):
        if place.exists() and not place.is_dir():
            raise ValueError(f"{place} is not a directory: name another one")
    for path in texts:
        if path.exists():
            raise ValueError(f"{path} exists already, and nothing was written: name another directory")
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in sorted(texts.items()):
        path.write_text(text, encoding="utf-8")
        session.screen.line(f"wrote {path}")
    session.screen.line("\nNext:")
    # A name that begins with a dash would be an option of cd.
    where = shlex.quote(f"./{directory}" if str(directory).startswith("-") else str(directory))
    steps = _NEXT if directory == Path() else (f"{f'cd {where}':43} # in every shell", *_NEXT)
    for step in steps:
        session.screen.line(f"  {step}")
