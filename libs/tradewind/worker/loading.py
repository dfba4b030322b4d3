"""Finds the nodes and flows of a module, for commands such as `tradewind worker MODULE`."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from types import ModuleType

from tradewind.flow import Flow
from tradewind.worker.errors import NodeLoadError, WorkerError
from tradewind.worker.failures import error_summary
from tradewind.worker.nodes import AnyNode, Node
from tradewind.worker.program import importing
from tradewind.worker.texts import suggestion
from tradewind.worker.worker import Worker


def load_nodes(target: str) -> list[AnyNode]:
    """Import `module` or `module:attribute` and return its nodes, in the order of the module.

    Without an attribute, these are all nodes that the module names; an attribute must be a node or a list of nodes.
    Modules in the current directory are found. Raises NodeLoadError, which says what is wrong: no such module, a module
    that fails to import, no such attribute, no nodes.
    """
    if not isinstance(target, str):
        raise NodeLoadError(f'give the name of a module, such as "examples.nodes", not {target!r}')
    name, colon, attribute = target.partition(":")
    module = _import(name)
    if not colon:
        nodes = _distinct(vars(module).values())
        if not nodes:
            raise NodeLoadError(f"module {name} has no nodes: decorate its functions with @node(...)")
        return nodes
    return _nodes_of(_attribute(module, attribute), target)


def load_flow(target: str) -> Flow:
    """Import `module:attribute` and return that flow. Raises NodeLoadError, which says what is wrong."""
    name, _, attribute = target.partition(":")
    found = _attribute(_import(name), attribute)
    if not isinstance(found, Flow):
        raise NodeLoadError(f"{target} is {type(found).__qualname__}: it must be a Flow")
    return found


def _import(name: str) -> ModuleType:
    if not name or name.startswith(".") or name.endswith((".py", ".")) or "/" in name:
        raise NodeLoadError(f'"{name}" is not the name of a module: write it as in an import, such as examples.nodes')
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


def _attribute(module: ModuleType, name: str) -> object:
    if not name:
        raise NodeLoadError(f"which name of module {module.__name__}? Write it after the colon")
    if not hasattr(module, name):
        raise NodeLoadError(f"module {module.__name__} has no {name}{suggestion(name, _public(module))}")
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
    raise NodeLoadError(f"{target} is {type(value).__qualname__}: it must be a node or a list of nodes")


def _distinct(values: Iterable[object]) -> list[AnyNode]:
    return list({id(value): value for value in values if isinstance(value, Node)}.values())


def _public(module: ModuleType) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_")]
