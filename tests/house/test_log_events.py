"""Log events of services have names to search and alert by."""

import ast
import re
from pathlib import Path

from tests.house.project import NAMESPACE_ROOTS, ROOT

NAME = re.compile(r"[a-z]+(_[a-z]+)*")


def events(module: Path) -> list[ast.expr]:
    """Return the event texts of a module that logs with structlog."""
    text = module.read_text(encoding="utf-8")
    if "structlog.get_logger(" not in text:
        return []
    calls = [call for call in ast.walk(ast.parse(text)) if isinstance(call, ast.Call) and call.args]
    texts = [call.args[0] for call in calls if re.search(r"(\b|_)log\.\w+\)?$", ast.unparse(call.func))]
    texts += [text for call in calls if ast.unparse(call.func) == "IncidentLog" for text in call.args[1:]]
    return [text for text in texts if isinstance(text, ast.Constant | ast.JoinedStr)]


def test_log_events_are_in_snake_case() -> None:
    """The text of an event is in snake case; variable parts are fields of the event."""
    found = {module: events(module) for root in NAMESPACE_ROOTS for module in root.rglob("*.py")}
    sentences = [
        f"{module.relative_to(ROOT)}:{event.lineno}: {ast.unparse(event)}"
        for module, some in found.items()
        for event in some
        if not (isinstance(event, ast.Constant) and NAME.fullmatch(str(event.value)))
    ]

    assert any(found.values())
    assert sentences == []
