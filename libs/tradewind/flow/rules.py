"""Checks the rules of a node that have their own classes."""

from tradewind.flow.cache import Cache
from tradewind.flow.errors import FlowError
from tradewind.flow.retry import Retry
from tradewind.flow.timeouts import Timeouts
from tradewind.flow.values import kind_of

_RULES = {
    "timeouts": (Timeouts, 'Timeouts(total="5m")'),
    "retry": (Retry, "Retry(3)"),
    "cache": (Cache, 'Cache("prices")'),
}


def check_rule(name: str, rule: object, path: str) -> None:
    """Raise FlowError, with the path of the rule, if it is not an object of the right class."""
    kind, example = _RULES[name]
    if not isinstance(rule, kind):
        raise FlowError(f"must be a {kind.__name__}, such as {example}, is {kind_of(rule)}", path)
