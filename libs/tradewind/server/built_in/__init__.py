"""Node types that are part of Tradewind: the node task manager runs them, without a worker."""

from tradewind.server.built_in.approvals import APPROVAL, Approval
from tradewind.server.built_in.delays import DELAY, Delay
from tradewind.server.built_in.flows import FLOW, MAX_DEPTH, SubFlow
from tradewind.server.built_in.node_type import BuiltIn, Handle

BUILT_IN: dict[str, BuiltIn] = {built_in.name: built_in for built_in in (APPROVAL, DELAY, FLOW)}
"""All of them, by name."""

__all__ = ["APPROVAL", "BUILT_IN", "DELAY", "FLOW", "MAX_DEPTH", "Approval", "BuiltIn", "Delay", "Handle", "SubFlow"]
