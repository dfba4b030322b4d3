"""Finds the nodes and flows of a module, for commands such as `tradewind worker MODULE`."""

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterable
from types import ModuleType

from tradewind.flow import Flow
from tradewind.flow.values import type_with_article
from tradewind.worker.errors import NodeLoadError, WorkerError
from tradewind.worker.failures import error_summary
from tradewind.worker.nodes import AnyNode, Node
from tradewind.worker.offered import by_type
from tradewind.worker.program import importing
from tradewind.worker.texts import suggestion
from tradewind.worker.worker import Worker

_MAX_MODULES = 10
"""How many modules of a package are named."""


def load_nodes(target: str) -> list[AnyNode]:
    """Import `module` or `module:attribute` and return its nodes, in the order of the module.

    Without an attribute, these are all nodes that the module names; an attribute must be a node or a list of nodes.
    Modules in the current directory are found. Raises NodeLoadError, which says what is wrong: no such module, a module
    that fails to import, no such attribute, no nodes, two nodes of one type.
    """
    if not isinstance(target, str):
        raise NodeLoadError(f'give the name of a module, such as "examples.nodes", not {target!r}')
    name, colon, attribute = target.partition(":")
    module = _import(name)
    nodes = (
        _nodes_of(_attribute(module, attribute, "node", _offers(module)), target)
        if colon
        else _distinct(vars(module).values())
    )
    if not nodes:
        raise NodeLoadError(_without_nodes(module))
    try:
        by_type(nodes)
    except WorkerError as error:
        raise NodeLoadError(f"module {name}: {error}") from error
    return nodes


def load_flow(target: str) -> Flow:
    """Import `module:attribute` and return that flow. Raises NodeLoadError, which says what is wrong."""
    name, _, attribute = target.partition(":")
    module = _import(name)
    flows = [each for each, value in vars(module).items() if isinstance(value, Flow)]
    found = _attribute(module, attribute, "flow", flows)
    if not isinstance(found, Flow):
        raise NodeLoadError(f"{target} is {type_with_article(found)}, not a Flow")
    return found


def _import(name: str) -> ModuleType:
    if not name or name.startswith(".") or name.endswith((".py", ".")) or "/" in name:
        raise NodeLoadError(f'"{name}" is not the name of a module: write it as in an import, such as {_dotted(name)}')
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with importing():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise NodeLoadError(
                f"there is no module {error.name} in the current directory ({os.getcwd()}) or among the installed "
                "packages"
            ) from error
        raise NodeLoadError(f"module {name} needs {error.name}, which is not installed") from error
    except WorkerError as error:
        raise NodeLoadError(f"module {name}: {error}") from error
    except Exception as error:
        raise NodeLoadError(f"module {name} cannot be imported: {error_summary(error)}") from error


def _attribute(module: ModuleType, name: str, kind: str, choices: list[str]) -> object:
    """Return what a module has under a name; when there is nothing, `choices` are the names of this kind."""
    if not name:
        raise NodeLoadError(f"which name of module {module.__name__}? Write it after the colon")
    if not hasattr(module, name):
        hint = suggestion(name, choices) if choices else f", and no {kind} either"
        raise NodeLoadError(f"module {module.__name__} has no {name}{hint}")
    return getattr(module, name)


def _nodes_of(value: object, target: str) -> list[AnyNode]:
    if isinstance(value, Node):
        return [value]
    if isinstance(value, list | tuple) and value and all(isinstance(each, Node) for each in value):
        return list(value)
    if isinstance(value, Worker):
        raise NodeLoadError(
            f"{target} is a Worker, whose settings would be lost here: give its nodes instead, or run its own program"
        )
    raise NodeLoadError(f"{target} is {type_with_article(value)}, not a node or a list of nodes")


def _without_nodes(module: ModuleType) -> str:
    """Return the message for a module that has no nodes: another one may be meant."""
    name = module.__name__
    paths: list[str] = list(getattr(module, "__path__", []))
    file = getattr(module, "__file__", None) or next(iter(paths), None)
    message = f"module {name} ({_relative(file) if file else 'built in'}) has no nodes"
    namesake = os.path.join(os.getcwd(), *name.split(".")) + ".py"
    if os.path.exists(namesake) and os.path.realpath(namesake) != os.path.realpath(file or ""):
        return f"{message}, and {_relative(namesake)} cannot be imported by that name: rename it"
    modules = [f"{name}.{each.name}" for each in pkgutil.iter_modules(paths) if not each.name.startswith("_")]
    if modules:
        return f"{message}: did you mean {' or '.join(modules[:_MAX_MODULES])}?"
    return f"{message}: decorate its functions with @node(...)"


def _relative(file: str) -> str:
    return file.removeprefix(os.getcwd() + os.sep)


def _dotted(name: str) -> str:
    """Return the name of the module that a path may mean, or an example."""
    dotted = os.path.relpath(name.removesuffix(".py") or os.curdir).replace(os.sep, ".")
    return dotted if all(part.isidentifier() for part in dotted.split(".")) else "examples.nodes"


def _distinct(values: Iterable[object]) -> list[AnyNode]:
    return list({id(value): value for value in values if isinstance(value, Node)}.values())


def _offers(module: ModuleType) -> list[str]:
    """Return the names of a module's nodes and of its lists of nodes."""
    named = {name: value if isinstance(value, list | tuple) else [value] for name, value in vars(module).items()}
    return [name for name, values in named.items() if values and all(isinstance(each, Node) for each in values)]
