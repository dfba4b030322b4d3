"""Free labels of a flow."""

from collections.abc import Mapping
from typing import Any

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.paths import join, shown
from tradewind.server.identifiers import check_identifier

MAX_LABELS = 32
LONGEST_VALUE = 256
"""In characters."""


def read_labels(labels: Mapping[str, Any], faults: FaultList) -> tuple[tuple[str, str], ...]:
    """Return the labels, sorted by key; a key is an identifier, a value has at most 256 characters."""
    if len(labels) > MAX_LABELS:
        faults.add("labels", f"{len(labels)} labels; at most {MAX_LABELS}")
    for key, value in labels.items():
        fault = check_identifier(join("labels", key), key)
        if fault is not None:
            faults.add(fault.path, f"label key {fault.message}")
        if not isinstance(value, str):
            faults.add(join("labels", key), f"must be text, is {shown(value)}")
        elif len(value) > LONGEST_VALUE:
            faults.add(join("labels", key), f"must have at most {LONGEST_VALUE} characters, has {len(value)}")
    return tuple(sorted((key, value) for key, value in labels.items() if isinstance(value, str)))
