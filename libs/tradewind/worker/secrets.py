"""Secrets in configs: `{"$secret": "name"}` is replaced by a value that only this process knows and never reveals."""

import asyncio
import inspect
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, quote_plus

from tradewind.server.hidden_values import SECRET_KEY
from tradewind.worker.errors import NodeFault, invalid_input
from tradewind.worker.failures import type_name
from tradewind.worker.outputs import Ending

ENVIRONMENT_PREFIX = "TRADEWIND_SECRET_"
DIRECTORY_VARIABLE = "TRADEWIND_SECRETS_DIR"
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")
_MIN_LENGTH = 8
"""The least characters of a secret that is looked for in outputs: shorter values would be found by chance."""

SecretSource = Callable[[str], str | Awaitable[str | None] | None]
"""Returns the value of a secret by name, None (or KeyError) if unknown. A plain function runs in a thread."""


def environment_name(name: str) -> str:
    """Return the environment variable that holds a secret: `broker.api-key` is in TRADEWIND_SECRET_BROKER_API_KEY."""
    return ENVIRONMENT_PREFIX + name.upper().replace("-", "_").replace(".", "_")


def holds_secret(value: Any) -> bool:
    """Return whether `value` contains a reference to a secret anywhere."""
    if isinstance(value, dict):
        return SECRET_KEY in value or any(map(holds_secret, value.values()))
    return isinstance(value, list) and any(map(holds_secret, value))


class Redactor:
    """Removes the values of secrets from texts, including their forms in a repr, in JSON and in a URL."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self.secrets = secrets
        """The values, by name."""
        names: dict[str, str] = {}
        for name, value in secrets.items():
            if value:
                quoted = (repr(value), json.dumps(value), json.dumps(value, ensure_ascii=False))
                forms = (value, *(text[1:-1] for text in quoted), quote(value, safe=""), quote_plus(value))
                names.update((form, name) for form in forms)
        # The longest first: one secret may contain another.
        longest_first = sorted(names, key=len, reverse=True)
        self._names = [names[form] for form in longest_first]
        self._pattern = re.compile("|".join(map(_group_of, longest_first))) if names else None

    def __call__(self, text: str) -> str:
        """Return `text` with each value replaced by `[secret name]`."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: f"[secret {self._name_in(found)}]", text)

    def first_in(self, text: str) -> str | None:
        """Return the name of the secret whose value comes first in `text`; None if it contains none."""
        found = self._pattern.search(text) if self._pattern is not None else None
        return self._name_in(found) if found is not None else None

    def _name_in(self, found: re.Match[str]) -> str:
        assert found.lastindex is not None, "each alternative of the pattern is a group"
        return self._names[found.lastindex - 1]


def _group_of(form: str) -> str:
    """Return the pattern of a text; in the traceback of an exception group, its lines are indented behind bars."""
    return f"({'[ |]*'.join(map(re.escape, form.splitlines(keepends=True)))})"


def refuse_secrets(redactor: Redactor, ending: Ending) -> None:
    """Raise NodeFault when an output or a wait contains the value of a secret of the attempt.

    Both are stored and shown.
    """
    if isinstance(ending, list):
        kind, texts = "outputs", [(f"output {handle}", text) for handle, text in ending]
    else:
        kind, texts = "waits", [("the form of the Wait", ending.form_json), ("the signal of the Wait", ending.signal)]
    long = Redactor({name: value for name, value in redactor.secrets.items() if len(value) >= _MIN_LENGTH})
    for what, text in texts:
        name = long.first_in(text)
        if name is not None:
            raise NodeFault(
                "INVALID_OUTPUT",
                f"{what} contains the value of the secret {name}, but {kind} are stored and shown: leave it out, and "
                "refer to the secret in the config of the node that needs it",
                non_retryable=True,
            )


def _from_file(name: str) -> str | None:
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory or not _FILE_NAME.fullmatch(name):
        return None
    try:
        text = (Path(directory) / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text.removesuffix("\n").removesuffix("\r")


class SecretResolver:
    """Resolves references, from the function `source` if there is one, else from the environment and a folder of files.

    A file is named after its secret, and is read whenever the secret is needed, so it may be replaced at any time.
    """

    def __init__(self, source: SecretSource | None = None) -> None:
        if source is not None and not callable(source):
            # Not shown: its values are secret.
            raise TypeError(
                f"secrets must be a function that returns a secret by its name, such as the `get` of a dict, not a "
                f"value of type {type(source).__name__}"
            )
        self._source = source

    async def resolve(self, config: dict[str, Any]) -> tuple[dict[str, Any], Redactor]:
        """Return a copy of `config` with values instead of references, and a Redactor for these values.

        Raises NodeFault SECRET_MISSING with the names of all secrets that have no value.
        """
        values: dict[str, str] = {}
        missing: list[str] = []
        for name in sorted(_names(config, "config")):
            value = await self._value(name)
            if value is None:
                missing.append(name)
            else:
                values[name] = value
        if missing:
            raise NodeFault("SECRET_MISSING", self._missing(missing))
        return cast("dict[str, Any]", _replaced(config, values)), Redactor(values)

    async def _value(self, name: str) -> str | None:
        if self._source is None:
            held = os.environ.get(environment_name(name))
            return held if held is not None else await asyncio.to_thread(_from_file, name)
        try:
            if inspect.iscoroutinefunction(self._source):
                value = await self._source(name)
            else:
                value = await asyncio.to_thread(self._source, name)
                if inspect.isawaitable(value):
                    value = await value
        except KeyError:
            return None
        except Exception as error:
            # Its message may contain the secret, so only its type is reported.
            raise NodeFault(
                "NODE_ERROR", f"the worker's secrets hook failed for {name}", type=type_name(error)
            ) from None
        if value is not None and not isinstance(value, str):
            raise NodeFault(
                "NODE_ERROR", f"the worker's secrets hook must return text for {name}, or None", "TypeError"
            )
        return value

    def _missing(self, names: list[str]) -> str:
        if self._source is not None:
            return f"the worker's secrets hook has no value for {', '.join(names)}"
        message = "this worker has no value for " + ", ".join(
            f"{name} (set {environment_name(name)})" for name in names
        )
        directory = os.environ.get(DIRECTORY_VARIABLE)
        return f"{message}, nor a file of that name in {directory}" if directory else message


def _names(value: Any, path: str) -> set[str]:
    names: set[str] = set()
    if isinstance(value, dict):
        if SECRET_KEY in value:
            name = value[SECRET_KEY]
            if len(value) != 1 or not isinstance(name, str):
                raise invalid_input(f'{path}: a reference to a secret must be exactly {{"$secret": "name"}}')
            return {name}
        for key, inner in value.items():
            names |= _names(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            names |= _names(inner, f"{path}[{index}]")
    return names


def _replaced(value: Any, secrets: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        if SECRET_KEY in value:
            return secrets[value[SECRET_KEY]]
        return {key: _replaced(inner, secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, secrets) for inner in value]
    return value
