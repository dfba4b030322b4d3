"""YAML as a friendlier JSON: dates, `yes` and `1:30` stay text, keys are unique, and every place has a line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

_STRING, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
_MAX_DEPTH = 200
"""Deeper than any valid value of a flow, so that a value nested too deeply is reported with its path."""
_MAX_VALUES = 1_000_000
"""Including values that aliases repeat: a few lines, each repeating the previous one ten times, exhaust any memory."""
_STEP = re.compile(r"[^.\[\]]+|\[[0-9]+\]")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a text, counted from 1; 0 means unknown."""

    line: int = 0
    column: int = 0


class YamlFault(Exception):
    """Text that is not YAML, or YAML that JSON could not express."""

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(message)
        self.message = message
        self.place = place


class _Loader(_SafeLoader):
    """Distinguishes only what YAML 1.2 and JSON do: null, booleans, numbers, text. YAML 1.1 has many more surprises."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  as PyYAML declares it


for _tag, _pattern, _beginnings in (
    ("merge", r"<<", "<"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_beginnings))


def load(text: str) -> Any:
    """Return the values in YAML text. Raises YamlFault."""
    try:
        _check_size(text)
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _check_keys(root)
            return loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        place = _place(error.problem_mark or error.context_mark)
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        if _is_tab(text, place):
            problem = "a tab; YAML is indented with spaces"
        raise YamlFault(f"is not YAML: {problem}", place) from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlFault(f"is not YAML: {error}", Place()) from None
    except (LookupError, AttributeError):
        # What PyYAML raises for `!!bool maybe`.
        raise YamlFault("is not YAML: a value does not match its tag (!!)", Place()) from None


def _is_tab(text: str, place: Place) -> bool:
    line = text.splitlines()[place.line - 1 : place.line]
    return bool(line) and line[0][: place.column].endswith("\t")


def place_of(text: str, path: str) -> Place:
    """Return the place of the value at a path such as `nodes[3].config`; nearly all JSON text is YAML too."""
    node = _compose(text)
    for step in _STEP.findall(path):
        child = _child(node, step)
        if child is None:
            break
        node = child
    return _place(node.start_mark) if node is not None else Place()


def place_of_duplicate_key(text: str) -> Place:
    """Return the place of the first key that its mapping has already."""
    root = _compose(text)
    try:
        if root is not None:
            _check_keys(root)
    except YamlFault as fault:
        return fault.place
    return Place()


def _compose(text: str) -> yaml.Node | None:
    try:
        _check_size(text)
        return yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, YamlFault):
        return None


def _check_size(text: str) -> None:
    # The parser keeps its own stack, but later steps recurse, in C, as far as the stack goes and then beyond.
    values, anchors, known = [0], list[str | None](), dict[str | None, int]()
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            if len(values) > _MAX_DEPTH:
                raise YamlFault(f"is nested more than {_MAX_DEPTH} levels deep", _place(event.start_mark))
            values.append(1)
            anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            known[anchors.pop()] = inner = values.pop()
            values[-1] += inner
        elif isinstance(event, yaml.NodeEvent):
            values[-1] += known.get(event.anchor, 1) if isinstance(event, yaml.AliasEvent) else 1
        if values[-1] > _MAX_VALUES:
            message = f"has more than {_MAX_VALUES} values, counting those that aliases repeat"
            raise YamlFault(message, _place(event.start_mark))


def _child(node: yaml.Node | None, step: str) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and step.startswith("["):
        place = int(step[1:-1])
        return node.value[place] if place < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    return None


def _check_keys(root: yaml.Node) -> None:
    for node in _nodes(root):
        if not isinstance(node, yaml.MappingNode):
            continue
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == _MERGE:
                continue
            if key.tag != _STRING or not isinstance(key, yaml.ScalarNode):
                raise YamlFault("a key must be text: put it in quotes", _place(key.start_mark))
            if key.value in seen:
                raise YamlFault(f'"{key.value}" occurs twice in one object', _place(key.start_mark))
            seen.add(key.value)


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Yield every node once, including those that aliases lead to."""
    pending, seen = [root], set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            pending.extend(reversed(node.value))
        elif isinstance(node, yaml.MappingNode):
            pending.extend(value for _, value in reversed(node.value))


def _place(mark: Any) -> Place:
    """Return the place of a mark; libyaml has its own type of mark, and None is an unknown place."""
    return Place(mark.line + 1, mark.column + 1) if mark is not None else Place()
