"""How a process for nodes finds a node: by its module, and its name there."""

import importlib
import sys
from dataclasses import dataclass
from types import ModuleType

from tradewind.worker.errors import NodeDefinitionError, NodeFault
from tradewind.worker.failures import error_summary, type_name
from tradewind.worker.nodes import AnyNode, Node


@dataclass(frozen=True, slots=True)
class Target:
    """Where to find a node."""

    module: str
    name: str

    def load(self, node_type: str) -> AnyNode:
        """Import the module and return the node. Raises NodeFault when it is not the node that the worker has."""
        try:
            module = importlib.import_module(self.module)
        except BaseException as error:
            raise NodeFault(
                "NODE_ERROR",
                f"module {self.module} cannot be imported in a process of its own: {error_summary(error)}",
                type=type_name(error),
            ) from error
        found = getattr(module, self.name, None)
        if not isinstance(found, Node) or found.type != node_type:
            raise NodeFault(
                "NODE_ERROR",
                f"{self.module}.{self.name} is the node {node_type} in the worker, but not in a process of its "
                "own: make the module declare the same nodes wherever it is imported",
                type="InvalidTarget",
            )
        return found


def locate(node: AnyNode) -> Target:
    """Return where a process can find `node`. Raises NodeDefinitionError, which says what to do, if it cannot."""
    label = f'node "{node.type}" ({getattr(node.function, "__qualname__", node.function)})'
    home = sys.modules.get(getattr(node.function, "__module__", None) or "")
    others = [module for name, module in list(sys.modules.items()) if name != "__main__" and module is not home]
    for module in (home, *others):
        name = _name_in(module, node)
        if module is None or name is None:
            continue
        if module.__name__ == "__main__":
            raise NodeDefinitionError(
                f"{label}: it is declared in the program itself, which a process of its own cannot import; move it "
                "into a module, import it from there, and leave the Worker here"
            )
        return Target(module.__name__, name)
    raise NodeDefinitionError(
        f"{label}: with process=True it is looked up by name in a process of its own, but no module has a name for it; "
        "declare it at the top level of a module, not inside a function"
    )


def _name_in(module: ModuleType | None, node: AnyNode) -> str | None:
    if module is None:
        return None
    try:
        return next((name for name, value in list(vars(module).items()) if value is node), None)
    except TypeError:
        # Some packages replace a module by an object without vars().
        return None
