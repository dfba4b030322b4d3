"""Every command and setting that documents show exists, with its arguments and options."""

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from typer.main import get_command

from tests.house.pages import DOCUMENTS, blocks
from tests.house.project import ROOT, project_files
from tradewind.access.settings import AccessSettings
from tradewind.cli.app import app
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.registry.settings import RegistrySettings
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.standalone.settings import StandaloneSettings
from tradewind.trigger.settings import TriggerSettings

ROOT_COMMAND: Any = get_command(app)
SERVERS = (
    AccessSettings,
    NodeTaskManagerSettings,
    RegistrySettings,
    SchedulerSettings,
    StandaloneSettings,
    TriggerSettings,
)


def lines(text: str) -> Iterator[str]:
    """Yield each command line that a document shows, continued lines as one."""
    for block in blocks(text, "console"):
        yield from re.findall(r"^\$ (.*)$", block.replace("\\\n", " "), re.MULTILINE)


def calls(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each `tradewind` in a shell line."""
    words = shlex.shlex(re.sub(r"[<>] ?\S+", "", line), posix=True, punctuation_chars=True)
    words.whitespace_split = True
    call: list[str] | None = None
    before = ";"
    for word in (*words, ";"):
        if set(word) <= set("();&|"):
            if call is not None:
                yield call
            call = None
        elif call is not None:
            call.append(word)
        elif word == "tradewind" and ("=" in before or before in ("--", *"();&|")):
            call = []
        before = word


def parse(arguments: list[str]) -> None:
    """Parse a command as a shell would pass it, without running it. Raises click's exceptions."""
    command, name = ROOT_COMMAND, "tradewind"
    while hasattr(command, "commands"):
        context = command.make_context(name, list(arguments))
        name, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
    command.make_context(name, list(arguments))


@pytest.mark.parametrize("document", [name for name, text in DOCUMENTS.items() if "$ tradewind " in text])
def test_commands_can_be_parsed(document: str) -> None:
    faults = []
    for line in filter(re.compile(r"\btradewind ").search, lines(DOCUMENTS[document])):
        for arguments in calls(line):
            try:
                parse(arguments)
            except Exception as error:
                faults.append(f"{line}: {error}")

    assert faults == []


GRPCURL = re.compile(r"\$ grpcurl [^$]*?-d '(.*?)'[^$]*? ([\w.]+)/(\w+)", re.DOTALL)
"""A message, the service and the method that a document calls with grpcurl."""
RUN_AS_THEY_STAND = {"docs/runbook.md"}
"""tests/system/test_runbook.py runs all calls of these, whose messages grpcurl reads otherwise than JSON's mapping."""


@pytest.mark.parametrize(
    "document", sorted(name for name in DOCUMENTS.keys() - RUN_AS_THEY_STAND if GRPCURL.search(DOCUMENTS[name]))
)
def test_messages_fit_their_calls(document: str) -> None:
    """A reader who copies a call sends a message that the method takes."""
    for module in (ROOT / "libs/tradewind/api").rglob("*_pb2.py"):
        import_module(".".join(module.relative_to(ROOT / "libs").with_suffix("").parts))
    for message, service, method in GRPCURL.findall(DOCUMENTS[document]):
        if not service.startswith("grpc."):
            called = descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]
            json_format.Parse(message, message_factory.GetMessageClass(called.input_type)())


def settings() -> set[str]:
    """Return the environment variables of servers, and those that are named in code for clients, workers and nodes."""
    code = [name for name in project_files() if name.suffix in (".py", ".js") and name.parts[0] in ("libs", "examples")]
    named = {word for name in code for word in re.findall(r"TRADEWIND_\w+", (ROOT / name).read_text("utf-8"))}
    return named | {f"TRADEWIND_{field}".upper() for each in SERVERS for field in each.model_fields}


def test_settings_exist() -> None:
    known = settings()
    unknown = {
        f"{document}: {word}"
        for document, text in DOCUMENTS.items()
        for word in re.findall(r"\bTRADEWIND_\w*[A-Z]\b", text)
        if word not in known and not word.startswith("TRADEWIND_SECRET_")
    }

    assert sorted(unknown) == []
