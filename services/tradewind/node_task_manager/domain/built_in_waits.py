"""What nodes of built-in types wait for."""

import json
from collections.abc import Mapping
from typing import Any

from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.server.built_in import APPROVAL, BUILT_IN, DELAY, FLOW, Approval, Delay, SubFlow
from tradewind.server.built_in.approvals import APPROVE, APPROVED, FAIL, REJECTED, SIGNAL
from tradewind.server.built_in.forms import Answer


def wait_of(node_type: str, config_json: str) -> Wait | None:
    """Return what a node waits for instead of running, None when its type is not built in.

    Raises ValueError when the config does not fit the type.
    """
    if node_type not in BUILT_IN:
        return None
    config = json.loads(config_json or "{}")
    if not isinstance(config, dict):
        raise ValueError("must be a JSON object")
    return {DELAY.name: _delay, APPROVAL.name: _approval, FLOW.name: _sub_flow}[node_type](config)


def _delay(config: Mapping[str, Any]) -> Wait:
    delay = Delay.of(config)
    return Wait(till=delay.until_ms, after_ms=delay.after_ms, late=(DELAY.outputs[0], "null"), passes=True)


def _sub_flow(config: Mapping[str, Any]) -> Wait:
    return Wait(flow_id=SubFlow.of(config).flow_id)


def _approval(config: Mapping[str, Any]) -> Wait:
    approval = Approval.of(config)
    late, error = None, ""
    if approval.then == FAIL:
        error = "nobody answered in time"
    elif approval.until_ms or approval.after_ms >= 0:
        approved = approval.then == APPROVE
        late = (APPROVED if approved else REJECTED, Answer(approved).to_json(by=""))
    return Wait(
        signal=SIGNAL,
        till=approval.until_ms,
        after_ms=approval.after_ms,
        form=json.dumps(approval.form, ensure_ascii=False),
        title=approval.form["title"],
        decides=True,
        late=late,
        late_error=error,
    )
