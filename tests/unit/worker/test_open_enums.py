"""Enums that read more values than those of their members: their schemas refuse nothing that nodes read."""

import json
from dataclasses import dataclass
from enum import Enum, IntFlag, StrEnum
from typing import Any

import pytest
from pydantic import BaseModel

from tradewind.server import json_schema
from tradewind.testing import run_node
from tradewind.worker import node


class Rights(IntFlag):
    """What an account may do."""

    READ = 1
    TRADE = 2
    PAY = 4
    ALL = 7


class Side(StrEnum):
    BUY = "buy"
    SELL = "sell"

    @classmethod
    def _missing_(cls, value: object) -> "Side | None":
        return next((each for each in cls if each == str(value).lower()), None)


class Kind(Enum):
    SPOT = "spot"


@dataclass
class Account:
    rights: list[Rights]
    side: Side
    kind: Kind = Kind.SPOT


class Model(BaseModel):
    rights: list[Rights]
    side: Side
    kind: Kind = Kind.SPOT


@pytest.mark.parametrize("annotation", [Account, Model])
async def test_schemas_allow_what_flags_and_lenient_enums_read(annotation: Any) -> None:
    def open_account(account: Any, side: Side = Side.BUY) -> Any:
        return account

    open_account.__annotations__ |= {"account": annotation, "return": annotation}
    opening = node("open", outputs=["account"])(open_account)
    declared = opening.declaration()
    given = {"rights": [3, 7], "side": "SELL", "kind": "spot"}

    run = await run_node(opening, account=given, side="Buy")

    assert run.output == {"rights": [3, 7], "side": "sell", "kind": "spot"}
    assert json_schema.faults(declared.config_schema_json, {"account": given, "side": "Buy"}) == []
    assert json_schema.faults(declared.inputs[0].schema_json, given) == []
    assert json_schema.faults(declared.outputs[0].schema_json, run.output) == []
    wrong = {"rights": ["READ"], "side": 1, "kind": "SPOT"}
    assert [fault.path for fault in json_schema.faults(declared.inputs[0].schema_json, wrong)] == [
        "rights[0]",
        "side",
        "kind",
    ]


def test_schema_of_flag_names_its_members_as_examples() -> None:
    def allow(rights: Rights) -> None: ...

    (handle,) = node("allow", outputs=["done"])(allow).declaration().inputs
    assert json.loads(handle.schema_json)["$defs"]["Rights"] == {
        "title": "Rights",
        "description": "What an account may do.",
        "type": "integer",
        "examples": [1, 2, 4],
    }
