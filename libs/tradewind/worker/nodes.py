"""`@node`: makes a function a node type."""

import functools
import hashlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, Never, ParamSpec, TypeAlias, TypeVar

from tradewind.api.node_task_manager.v1 import cache_pb2, work_pb2
from tradewind.api.registry.v1 import node_type_pb2
from tradewind.flow import Cache
from tradewind.server.identifiers import is_identifier
from tradewind.worker.binding import Binder
from tradewind.worker.errors import NodeDefinitionError
from tradewind.worker.outputs import Ending, encode_outputs
from tradewind.worker.parameters import read_signature
from tradewind.worker.returns import return_check
from tradewind.worker.schema import check_readable, declare
from tradewind.worker.type_parts import type_name

_LONGEST_VERSION = 64

P = ParamSpec("P")
R = TypeVar("R")


class Node(Generic[P, R]):
    """A node type: a function with a name, output handles, and its parsed signature. Call it like the function."""

    def __init__(
        self,
        type: str,
        function: Callable[P, R],
        outputs: Sequence[str],
        description: str | None,
        process: bool = False,
        version: str = "",
        cache: Cache | str | None = None,
        eager: bool = False,
    ) -> None:
        label = f'node "{type}" ({getattr(function, "__qualname__", function)})'
        _check_names(type, outputs, label)
        _check_kind(function, label)
        functools.update_wrapper(self, function)
        self.type = type
        self.function = function
        self.outputs = tuple(outputs)
        self.description = _summary(function) if description is None else description
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  an object whose class has an async __call__
        )
        """Whether it runs on an event loop; otherwise it runs in a thread, or in the main thread of a process."""
        self.process = process
        """Whether it runs in a process of its own."""
        self.given_version = _checked_version(version, label)
        self.cache = _cache_use(cache, label)
        """The cache for nodes that do not name one themselves; None for no cache."""
        self.eager = eager
        """Whether it may begin before its input is stored."""
        self.signature = read_signature(function, label)
        check_readable(self.signature, label)
        self.binder = Binder(type, self.signature)
        self._return_check = return_check(self.signature.returns)
        if self._return_check is not None and len(self.outputs) != 1:
            raise NodeDefinitionError(f"{label}: {_says_other_outputs(self.outputs, self.signature.returns)}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<node {self.type}: {getattr(self.function, '__qualname__', self.function)}>"

    def outputs_of(self, result: Any) -> Ending:
        """Return what the function returned as it is emitted. Raises NodeFault as `encode_outputs` does."""
        return encode_outputs(result, self.outputs, self._return_check)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input handles, which are keys of the config as well."""
        return tuple(parameter.name for parameter in self.signature.parameters)

    @property
    def takes_any_config(self) -> bool:
        """Whether the config may have keys that are no input handles."""
        return self.signature.config_name is not None

    def declaration(self) -> node_type_pb2.NodeType:
        """Return the declaration of the type: handles, and JSON Schemas from the function's types and defaults."""
        declared = declare(self.type, self.description, self.signature, self.outputs)
        declared.version = self.version
        return declared

    @functools.cached_property
    def version(self) -> str:
        """Changes with the given version and with the signature: cached results of other versions do not count."""
        declared = declare(self.type, "", self.signature, self.outputs).SerializeToString(deterministic=True)
        return f"{self.given_version}+{hashlib.sha256(declared).hexdigest()[:12]}"

    def offer(self) -> work_pb2.OfferedType:
        """Return what a worker tells the node task manager about the type."""
        return work_pb2.OfferedType(
            node_type=self.type, version=self.version, cache=self.cache, eager=self.eager, outputs=self.outputs
        )


AnyNode: TypeAlias = Node[..., Any]


def node(
    type: str,
    *,
    outputs: Sequence[str] = ("output",),
    description: str | None = None,
    process: bool = False,
    version: str = "",
    cache: Cache | str | None = None,
    eager: bool = False,
    **elsewhere: Never,
) -> Callable[[Callable[P, R]], Node[P, R]]:
    """Make a function the node type `type`.

    An `async def` runs on the event loop, a plain function in a thread. With `process`, either runs in a process of its
    own: calculations run side by side, whatever happens there affects no other node, and a node that does not stop is
    killed. Declare such a node at the top level of a module that can be imported.

    Parameters are filled by name, from the first source that has a value: the input handle, the run's inputs (for entry
    nodes), the node's config, the default. A parameter annotated `Context` gets the context; one annotated `Gather[T]`
    takes any number of edges as a list; one named `config` that is a `dict` or a pydantic model gets the whole config.
    With one output, the return value is emitted, even `None`; with several, return `Emit(buy=..., ...)`. Returning
    `Wait(...)` suspends the node, without a worker, until a signal or a time comes.

    With `cache`, a cache's name or a Cache, nodes of this type do not run when the same work was done before, unless
    they name another cache themselves. Change `version` (up to 64 characters) when the function returns something else
    for the same inputs, so that older results do not count.

    With `eager`, a worker that has just run the previous node runs this one at once, while the previous result is being
    stored: a chain of such nodes takes one round trip to the servers instead of one each. If the worker dies in
    between, more of them run again, and some may have run with a value that nobody sees; so use it only for nodes that
    change nothing outside.

    How often and how long a node may try is said where it is used: `flow.node(..., retry=Retry(3), timeout="30s")`.
    `description` defaults to the first paragraph of the docstring. Raises NodeDefinitionError when the function cannot
    be a node.
    """
    if not isinstance(type, str):
        raise NodeDefinitionError('@node needs the name of the node type: @node("moving_average")')
    if elsewhere:
        raise NodeDefinitionError(
            f'node "{type}": @node takes no {next(iter(elsewhere))}; retries, time limits and the like are said where '
            'the node is used: flow.node("id", function, retry=Retry(3), timeout="30s")'
        )
    _check_outputs(outputs, type)
    for name, value in (("process", process), ("eager", eager)):
        if not isinstance(value, bool):
            raise NodeDefinitionError(f'node "{type}": {name} must be True or False, not {value!r:.80}')
    if not isinstance(description, str | None):
        raise NodeDefinitionError(f'node "{type}": description must be text, not {description!r:.80}')
    return lambda function: Node(type, function, outputs, description, process, version, cache, eager)


def _check_outputs(outputs: object, type: str) -> None:
    if isinstance(outputs, str):
        raise NodeDefinitionError(f'node "{type}": outputs must be a list of handles: outputs=["{outputs}"]')
    if not isinstance(outputs, Sequence) or not all(isinstance(handle, str) for handle in outputs):
        raise NodeDefinitionError(
            f'node "{type}": outputs must be a list of handles such as ["buy", "sell"], not {outputs!r}'
        )


def _check_names(type: str, outputs: Sequence[str], label: str) -> None:
    for what, name in (("node type", type), *(("output handle", handle) for handle in outputs)):
        if not is_identifier(name):
            raise NodeDefinitionError(
                f'{label}: {what} "{name}" must begin with a letter or digit and have at most 128 letters, digits, '
                "dots, dashes and underscores"
            )
    if len(set(outputs)) < len(outputs):
        raise NodeDefinitionError(f"{label}: outputs has a handle twice: {', '.join(outputs)}")


def _check_kind(function: Callable[..., Any], label: str) -> None:
    if isinstance(function, Node):
        raise NodeDefinitionError(
            f"{label}: it is already a node: decorate the function itself again under the other name"
        )
    if isinstance(function, type) or not callable(function):
        raise NodeDefinitionError(f"{label}: decorate a function")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise NodeDefinitionError(f"{label}: a generator cannot be a node; return the value, or Emit(...) for several")


def _says_other_outputs(outputs: Sequence[str], returns: Any) -> str:
    """Say why a function with this return annotation cannot emit these outputs, which are none or several."""
    if not outputs:
        return f"it says that it returns {type_name(returns)}, and outputs=[] that it emits nothing"
    example = ", ".join(f"{handle}=..." for handle in outputs)
    return f"a node with several outputs returns Emit({example}), and this one says it returns {type_name(returns)}"


def _checked_version(version: object, label: str) -> str:
    if not isinstance(version, str) or len(version) > _LONGEST_VERSION:
        raise NodeDefinitionError(
            f'{label}: version must be text of at most {_LONGEST_VERSION} characters, such as "2", not {version!r:.80}'
        )
    return version


def _cache_use(cache: Cache | str | None, label: str) -> cache_pb2.CacheUse | None:
    try:
        return None if cache is None else Cache.of(cache).to_message()
    except (TypeError, ValueError) as error:
        raise NodeDefinitionError(f"{label}: cache: {error}") from None


def _summary(function: Callable[..., Any]) -> str:
    if isinstance(function, functools.partial):
        function = function.func
    paragraph = (inspect.getdoc(function) or "").split("\n\n")[0]
    return " ".join(paragraph.split())
