"""The node types that are part of Tradewind, as the catalogue lists them."""

from collections.abc import Sequence

from tradewind.registry.domain.node_type import InputHandle, NodeType, NodeTypeRecord, OutputHandle
from tradewind.server.built_in import BUILT_IN as TYPES
from tradewind.server.built_in import BuiltIn


def _record(found: BuiltIn) -> NodeTypeRecord:
    node_type = NodeType(
        name=found.name,
        description=found.description,
        inputs=tuple(InputHandle(handle.name, gather=handle.gather) for handle in found.inputs),
        outputs=tuple(map(OutputHandle, found.outputs)),
        config_schema=found.config_schema,
    )
    return NodeTypeRecord(node_type, 0, (), built_in=True)


BUILT_IN = {name: _record(found) for name, found in sorted(TYPES.items())}
"""The records of the built-in node types, by name."""


def with_built_in(
    records: Sequence[NodeTypeRecord], after: str, size: int, next_after: str
) -> tuple[Sequence[NodeTypeRecord], str]:
    """Return a page of up to `size` node types, built-in and declared ones in order of name, and its `next_after`.

    `records` is a page of declared node types. It begins after `after`, "" on the first page; the next one begins after
    `next_after`, "" on the last.
    """
    last = records[-1].node_type.name if records else ""
    built_in = [record for name, record in BUILT_IN.items() if name > after and (not next_after or name <= last)]
    declared = [record for record in records if record.node_type.name not in BUILT_IN]
    page = sorted([*declared, *built_in], key=lambda record: record.node_type.name)
    if len(page) > size:
        page = page[:size]
        next_after = page[-1].node_type.name
    return page, next_after
