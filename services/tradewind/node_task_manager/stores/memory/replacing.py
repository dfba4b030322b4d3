"""Records of dozens of fields, of which a step changes a few."""

import dataclasses
from typing import Any, TypeVar

Record = TypeVar("Record", bound=Any)


def replace(record: Record, **changes: Any) -> Record:
    """Do as `dataclasses.replace` does; of a frozen record without slots at a tenth of its cost."""
    if not hasattr(record, "__dict__"):
        return dataclasses.replace(record, **changes)
    if not changes.keys() <= record.__dict__.keys():
        raise TypeError(f"{type(record).__name__} has no fields {sorted(changes.keys() - record.__dict__.keys())}")
    changed: Record = object.__new__(type(record))
    changed.__dict__.update(record.__dict__, **changes)
    return changed
