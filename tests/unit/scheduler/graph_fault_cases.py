"""Flow definitions with a fault in a node or an edge: name, definition, and the fault's path and sentence."""

from typing import Any

from tests.unit.scheduler.fault_cases import FORMS, ID_RULE, A, without
from tests.unit.scheduler.flows import edge, flow, node

GRAPH_CASES: list[tuple[str, Any, list[tuple[str, str]]]] = [
    ("nodes missing", without(flow(edges=[]), "nodes"), [("nodes", "is required and must hold at least one node")]),
    ("nodes empty", flow(nodes=[], edges=[]), [("nodes", "must hold at least one node")]),
    ("nodes not a list", flow(nodes={"a": {}}, edges=[]), [("nodes", "must be a list, is an object")]),
    ("node not an object", flow(nodes=[A, "b"], edges=[]), [("nodes[1]", 'must be an object, is "b"')]),
    ("node id missing", flow(nodes=[{"type": "t"}], edges=[]), [("nodes[0].id", "is required")]),
    ("node id empty", flow(nodes=[node("")], edges=[]), [("nodes[0].id", "must not be empty")]),
    ("node id not text", flow(nodes=[{"id": 7, "type": "t"}], edges=[]), [("nodes[0].id", "must be text, is 7")]),
    ("node id illegal", flow(nodes=[node("a b")], edges=[]), [("nodes[0].id", f'"a b" {ID_RULE}')]),
    ("node id not ASCII", flow(nodes=[node("é")], edges=[]), [("nodes[0].id", f'"é" {ID_RULE}')]),
    (
        "node id with a line feed",
        flow(nodes=[node("a\n")], edges=[]),
        [("nodes[0].id", f'"a\n" {ID_RULE}')],
    ),
    (
        "node id too long",
        flow(nodes=[node("a" * 129)], edges=[]),
        [("nodes[0].id", "must have at most 128 characters, has 129")],
    ),
    (
        "node id twice",
        flow(nodes=[A, node("b"), node("a")]),
        [("nodes[2].id", '"a" is already the id of nodes[0]')],
    ),
    ("node type missing", flow(nodes=[{"id": "a"}], edges=[]), [("nodes[0].type", "is required")]),
    ("node type illegal", flow(nodes=[node("a", "-x")], edges=[]), [("nodes[0].type", f'"-x" {ID_RULE}')]),
    (
        "node field unknown",
        flow(nodes=[node("a", confg={})], edges=[]),
        [("nodes[0].confg", 'unknown field; did you mean "config"?')],
    ),
    (
        "config not an object",
        flow(nodes=[node("a", config=[1])], edges=[]),
        [("nodes[0].config", "must be an object, is a list")],
    ),
    (
        "config too large",
        flow(nodes=[node("a", config={"text": "ä" * 131_072})], edges=[]),
        [("nodes[0].config", "262155 bytes of compact JSON; at most 262144 (256 KiB): pass large data by reference")],
    ),
    (
        "run_if unknown",
        flow(nodes=[node("a", run_if="all_success")], edges=[]),
        [("nodes[0].run_if", 'unknown value "all_success"; did you mean "all_succeeded"?')],
    ),
    (
        "run_if unlike any other",
        flow(nodes=[node("a", run_if="x")], edges=[]),
        [("nodes[0].run_if", 'unknown value "x"; use one of "all_succeeded", "any_succeeded", "all_done"')],
    ),
    (
        "priority out of range",
        flow(nodes=[node("a", priority=6)], edges=[]),
        [("nodes[0].priority", "must be a whole number from -5 to 5, is 6")],
    ),
    (
        "limits",
        flow(
            max_running=0,
            nodes=[
                node("a", concurrency={"key": "a b", "max": 0, "when_full": "wai"}),
                node("b", concurrency={"limit": 1}),
                node("c", concurrency=3),
                node("d", cache=3),
                node("e", cache={"nam": "x", "scope": "usr", "ttl": "1ms", "key": "k" * 257}),
            ],
            edges=[],
        ),
        [
            ("max_running", "must be a whole number from 1 to 1000000, is 0"),
            ("nodes[0].concurrency.key", f'"a b" {ID_RULE}'),
            ("nodes[0].concurrency.max", "must be a whole number from 1 to 1000000, is 0"),
            ("nodes[0].concurrency.when_full", 'unknown value "wai"; did you mean "wait"?'),
            ("nodes[1].concurrency.limit", 'unknown field; use one of "key", "max", "when_full"'),
            ("nodes[1].concurrency.key", "is required"),
            ("nodes[1].concurrency.max", "is required"),
            ("nodes[2].concurrency", "must be an object, is 3"),
            ("nodes[3].cache", "must be an object, is 3"),
            ("nodes[4].cache.nam", 'unknown field; did you mean "name"?'),
            ("nodes[4].cache.name", "is required"),
            ("nodes[4].cache.key", "must have at most 256 characters, has 257"),
            ("nodes[4].cache.scope", 'unknown value "usr"; did you mean "user"?'),
            ("nodes[4].cache.ttl", 'must be at least 1000ms, is "1ms"'),
        ],
    ),
    (
        "rates",
        flow(
            nodes=[
                node("a", rate={"key": "a b", "limit": "100/m", "cost": 0}),
                node("b", rate={"key": "k", "limit": "100 a minute"}),
                node("c", rate={"key": "k", "limit": "5/s", "cost": 6}),
                node("d", rate={"max": 1}),
                node("e", rate="5/s"),
            ],
            edges=[],
        ),
        [
            ("nodes[0].rate.key", f'"a b" {ID_RULE}'),
            ("nodes[0].rate.cost", "must be a whole number from 1 to 999999999, is 0"),
            (
                "nodes[1].rate.limit",
                '"100 a minute" is not a rate; write COUNT/UNIT, such as "100/m", where UNIT is s, m, h or d',
            ),
            ("nodes[2].rate.cost", "must be at most 5, the most that the limit 5/s admits at once, is 6"),
            ("nodes[3].rate.max", 'unknown field; use one of "key", "limit", "cost"'),
            ("nodes[3].rate.key", "is required"),
            ("nodes[3].rate.limit", "is required"),
            ("nodes[4].rate", 'must be an object, is "5/s"'),
        ],
    ),
    (
        "schedule_to_start zero",
        flow(nodes=[node("a", schedule_to_start=0)], edges=[]),
        [("nodes[0].schedule_to_start", "must be at least 1ms, is 0")],
    ),
    (
        "node timeout unparsable",
        flow(nodes=[node("a", timeout="5 min")], edges=[]),
        [("nodes[0].timeout", f'cannot read "5 min" as a duration; {FORMS}')],
    ),
    (
        "timeouts with every field at fault",
        flow(
            nodes=[
                node(
                    "a",
                    timeout=3,
                    timeouts={
                        "start_to_close": "1m",
                        "schedule_to_start": 0,
                        "total": "-1s",
                        "heartbeat": "20ms",
                        "x": 1,
                    },
                )
            ],
            edges=[],
        ),
        [
            (
                "nodes[0].timeouts.x",
                'unknown field; use one of "schedule_to_start", "start_to_close", "total", "heartbeat"',
            ),
            (
                "nodes[0].timeouts.start_to_close",
                'is given twice: here and as "timeout" of the node; leave one out',
            ),
            ("nodes[0].timeouts.schedule_to_start", "must be at least 1ms, is 0"),
            ("nodes[0].timeouts.heartbeat", "must be 0 for none, or at least 1s, is 20ms"),
            ("nodes[0].timeouts.total", 'must not be negative, is "-1s"'),
        ],
    ),
    (
        "retry not an object",
        flow(nodes=[node("a", retry=3)], edges=[]),
        [("nodes[0].retry", "must be an object, is 3")],
    ),
    (
        "retry without attempts",
        flow(nodes=[node("a", retry={"retries": 3})], edges=[]),
        [
            (
                "nodes[0].retry.retries",
                'unknown field; use one of "attempts", "initial", "factor", "maximum", "jitter", "non_retryable"',
            ),
            ("nodes[0].retry.attempts", "is required: how many attempts the node has in all, 1 to 1000"),
        ],
    ),
    (
        "retry with every field at fault",
        flow(
            nodes=[
                node(
                    "a",
                    retry={
                        "attempts": 0,
                        "initial": "-1s",
                        "factor": 0.5,
                        "maximum": "400d",
                        "jitter": 1.5,
                        "non_retryable": ["ValueError", 7, ""],
                    },
                )
            ],
            edges=[],
        ),
        [
            ("nodes[0].retry.attempts", "must be a whole number from 1 to 1000, is 0"),
            ("nodes[0].retry.initial", 'must not be negative, is "-1s"'),
            ("nodes[0].retry.factor", "must be a number from 1 to 1000, is 0.5"),
            ("nodes[0].retry.maximum", 'must be at most 365d, is "400d"'),
            ("nodes[0].retry.jitter", "must be a number from 0 to 1, is 1.5"),
            ("nodes[0].retry.non_retryable[1]", "must be text of 1 to 256 characters, is 7"),
            ("nodes[0].retry.non_retryable[2]", 'must be text of 1 to 256 characters, is ""'),
        ],
    ),
    (
        "retry with maximum below initial",
        flow(nodes=[node("a", retry={"attempts": 2, "initial": "10s", "maximum": "5s"})], edges=[]),
        [("nodes[0].retry.maximum", "must not be less than initial, which is 10")],
    ),
    (
        "retry with names not in a list",
        flow(nodes=[node("a", retry={"attempts": 2, "non_retryable": "ValueError"})], edges=[]),
        [("nodes[0].retry.non_retryable", 'must be a list of texts, is "ValueError"')],
    ),
    ("edges not a list", flow(edges="a->b"), [("edges", 'must be a list, is "a->b"')]),
    ("edge not an object", flow(edges=[["a", "b"]]), [("edges[0]", "must be an object, is a list")]),
    (
        "edge fields missing",
        flow(edges=[{}]),
        [(f"edges[0].{name}", "is required") for name in ("source", "source_handle", "target", "target_handle")],
    ),
    (
        "edge fields of the wrong kind",
        flow(edges=[{"source": 1, "source_handle": [], "target": "", "target_handle": ""}]),
        [
            ("edges[0].source", "must be text, is 1"),
            ("edges[0].source_handle", "must be text, is a list"),
            ("edges[0].target", "must not be empty"),
            ("edges[0].target_handle", "must not be empty"),
        ],
    ),
    (
        "edge handle illegal",
        flow(edges=[edge("a", "b", source_handle="to b")]),
        [("edges[0].source_handle", f'"to b" {ID_RULE}')],
    ),
    (
        "edge field unknown",
        flow(edges=[{**edge("a", "b"), "from": "a"}]),
        [("edges[0].from", 'unknown field; use one of "source", "source_handle", "target", "target_handle"')],
    ),
    (
        "edge to an unknown node",
        flow(nodes=[A, node("model")], edges=[edge("a", "modle")]),
        [("edges[0].target", 'no node "modle"; did you mean "model"?')],
    ),
    (
        "edge from an unknown node, in another case",
        flow(nodes=[A, node("model")], edges=[edge("MODEL", "a")]),
        [("edges[0].source", 'no node "MODEL"; did you mean "model"?')],
    ),
    (
        "edge between unknown nodes",
        flow(edges=[edge("here", "there")]),
        [("edges[0].source", 'no node "here"'), ("edges[0].target", 'no node "there"')],
    ),
    (
        "self loop",
        flow(edges=[edge("a", "b"), edge("b", "b")]),
        [("edges[1]", 'node "b" feeds itself; an edge must join two different nodes')],
    ),
    (
        "cycle",
        flow(edges=[edge("a", "b"), edge("b", "a")]),
        [("edges[1]", "closes a cycle: a -> b -> a; remove one of its edges")],
    ),
    (
        "two cycles in one component, and a self loop",
        flow(
            nodes=[node(x) for x in "abcde"],
            edges=[edge(*ends) for ends in ("ab", "ba", "bc", "cd", "de", "ec", "dd")],
        ),
        [
            ("edges[6]", 'node "d" feeds itself; an edge must join two different nodes'),
            ("edges[1]", "closes a cycle: a -> b -> a; remove one of its edges"),
            ("edges[5]", "closes a cycle: c -> d -> e -> c; remove one of its edges"),
        ],
    ),
    (
        "long cycle",
        flow(nodes=[node(f"n{i}") for i in range(40)], edges=[edge(f"n{i}", f"n{(i + 1) % 40}") for i in range(40)]),
        [
            (
                "edges[39]",
                "closes a cycle: n0 -> n1 -> n2 -> n3 -> n4 -> n5 -> (32 more) -> n38 -> n39 -> n0; "
                "remove one of its edges",
            )
        ],
    ),
    (
        "secret name illegal",
        flow(nodes=[node("a", config={"key": {"$secret": "my key"}})], edges=[]),
        [("nodes[0].config.key.$secret", f'"my key" {ID_RULE}')],
    ),
    (
        "secret name not text",
        flow(nodes=[node("a", config={"keys": [{"$secret": None}]})], edges=[]),
        [("nodes[0].config.keys[0].$secret", "must be the name of a secret as text, is null")],
    ),
    (
        "secret with other fields",
        flow(nodes=[node("a", config={"key": {"$secret": "k", "default": "", "x": 1}})], edges=[]),
        [("nodes[0].config.key", 'a secret reference must have no field but "$secret"; remove "default", "x"')],
    ),
    (
        "config that is a secret itself",
        flow(nodes=[node("a", config={"$secret": "k"})], edges=[]),
        [("nodes[0].config", "a secret can stand for a value in the config, not for the whole of it")],
    ),
    (
        "NaN",
        flow(nodes=[node("a", config={"x": [1, float("nan")]})], edges=[]),
        [("nodes[0].config.x[1]", "NaN, Infinity and numbers beyond 1.8e308 are not JSON; use null or text")],
    ),
    (
        "half a surrogate pair",
        flow(nodes=[node("a", config={"x": "\ud800"})], edges=[]),
        [("nodes[0].config.x", '"?" contains an unpaired surrogate, which is not valid Unicode')],
    ),
    (
        "not a JSON value",
        flow(nodes=[node("a", config={"x": b"1"})], edges=[]),
        [("nodes[0].config.x", "a bytes is not a JSON value")],
    ),
    (
        "key not text",
        flow(nodes=[node("a", config={1: 2})], edges=[]),
        [("nodes[0].config", "1 is not a valid key; keys must be text")],
    ),
]
