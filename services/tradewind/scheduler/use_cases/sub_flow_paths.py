"""Checks that the flows that a definition runs do not lead back to the flow itself, and that they are registered."""

import json
from collections.abc import Sequence

from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.use_cases.flow_paths import PathsFound, edges_from, path_back
from tradewind.server.built_in import FLOW
from tradewind.server.faults import Violation
from tradewind.server.quoting import quoted


async def sub_flow_paths(flows: FlowRecords, flow_id: str, user_id: str, definition: FlowDefinition) -> PathsFound:
    """Return the faults and warnings of the definition that a flow of a user ("" for its owner) is to get.

    Follows nodes of type `flow` through the definitions on record.
    """
    named_flows = {
        place: str(json.loads(node.config_json)["flow_id"])
        for place, node in enumerate(definition.nodes)
        if node.node_type == FLOW.name
    }
    if not named_flows:
        return PathsFound()
    runs = await edges_from(flows, flow_id, user_id, tuple(named_flows.values()), _flows_run_by)
    faults: list[Violation] = []
    warnings: list[Violation] = []
    for place, target in named_flows.items():
        path = f"nodes[{place}].config.flow_id"
        if (found := path_back(flow_id, target, runs.edges)) is not None:
            path_text = " -> ".join(found)
            faults.append(
                Violation(path, f"a flow may not run itself, neither directly nor through others: {path_text}")
            )
        elif target in runs.unknown:
            message = f"flow {quoted(target)} is not registered; the node fails until it is"
            warnings.append(Violation(path, message))
        elif target in runs.of_others:
            message = f"flow {quoted(target)} belongs to another user; a node runs only flows of the same user"
            warnings.append(Violation(path, message))
    return PathsFound(tuple(faults), tuple(warnings))


def _flows_run_by(record: FlowRecord) -> Sequence[str]:
    if f'"{FLOW.name}"' not in record.config_json:
        return ()
    nodes = [node for node in json.loads(record.config_json)["nodes"] if node["type"] == FLOW.name]
    # A definition from before the type was built in may have no `flow_id`.
    named_flows = [str(node.get("config", {}).get("flow_id", "")) for node in nodes]
    return tuple(dict.fromkeys(filter(None, named_flows)))
