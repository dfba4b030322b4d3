"""Flow definitions with a fault, and what is said of each: name, definition, the faults as path and sentence."""

from typing import Any

from tests.unit.scheduler.flows import edge, flow, node

FORMS = 'give seconds as a number, or text such as "500ms", "5s", "5m", "1h" or "1d"'
ID_RULE = 'must begin with a letter or digit and hold only letters, digits, ".", "_" and "-"'
A = node("a")


def without(weather: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in weather.items() if key != name}


CASES: list[tuple[str, Any, list[tuple[str, str]]]] = [
    ("no object", [], [("flow", "must be an object with interval, nodes and edges, is a list")]),
    ("null", None, [("flow", "must be an object with interval, nodes and edges, is null")]),
    (
        "interval missing",
        without(flow(), "interval"),
        [("interval", 'is required; give seconds, or text such as "5m"; 0 runs once')],
    ),
    (
        "interval null",
        flow(interval=None),
        [("interval", 'is required; give seconds, or text such as "5m"; 0 runs once')],
    ),
    ("interval negative", flow(interval=-1), [("interval", "must not be negative, is -1")]),
    ("interval unparsable", flow(interval="often"), [("interval", f'cannot read "often" as a duration; {FORMS}')]),
    ("interval true", flow(interval=True), [("interval", f"must be a duration, is true; {FORMS}")]),
    (
        "schedule and interval",
        flow(schedule={"cron": "0 2 * * *"}),
        [("interval", "goes into schedule when there is one")],
    ),
    (
        "schedule with nothing",
        without(flow(schedule={}), "interval"),
        [("schedule", "must say when by one of interval, cron, at, event or flow_finished, says none of them")],
    ),
    (
        "schedule with two",
        without(flow(schedule={"cron": "0 2 * * *", "interval": "5m"}), "interval"),
        [("schedule", "must say when by one of interval, cron, at, event or flow_finished, says interval and cron")],
    ),
    (
        "schedule event without a name",
        without(flow(schedule={"event": {"filter": {"price": {"$about": 3}}}}), "interval"),
        [
            ("schedule.event.name", "is required"),
            (
                "schedule.event.filter",
                "price.$about: is no operator; use $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin or $exists",
            ),
        ],
    ),
    (
        "schedule event of the scheduler",
        without(flow(schedule={"event": {"name": "flow.finished"}}), "interval"),
        [
            (
                "schedule.event.name",
                '"flow.finished" is the scheduler\'s own; say flow_finished with flow_ids instead',
            )
        ],
    ),
    (
        "schedule event with what times have",
        without(flow(schedule={"event": {"name": "a"}, "jitter": "5s", "catch_up": "all", "zone": "UTC"}), "interval"),
        [
            ("schedule.zone", "goes with cron only"),
            ("schedule.jitter", "goes with planned times only, not with events"),
            ("schedule.catch_up", "goes with planned times only, not with events"),
        ],
    ),
    (
        "schedule event that ends before it begins",
        without(
            flow(schedule={"event": {"name": "a"}, "start": "2030-01-02T00:00:00Z", "end": "2030-01-01T00:00:00Z"}),
            "interval",
        ),
        [("schedule.end", "must lie after start")],
    ),
    (
        "schedule flow_finished of any flow",
        without(flow(schedule={"flow_finished": {"statuses": ["done"]}}), "interval"),
        [
            ("schedule.flow_finished.flow_ids", "must name 1 to 100 flows: with any flow, its own end would count"),
            (
                "schedule.flow_finished.statuses[0]",
                'no cycle ends as "done"; use some of "completed", "partial", "failed", "timeout", "cancelled"',
            ),
        ],
    ),
    (
        "schedule flow_finished of flows that are no names",
        without(flow(schedule={"flow_finished": {"flow_ids": ["a b"], "flow": "x"}}), "interval"),
        [
            ("schedule.flow_finished.flow", 'unknown field; did you mean "flow_ids"?'),
            (
                "schedule.flow_finished.flow_ids[0]",
                '"a b" must begin with a letter or digit and hold only letters, digits, ".", "_" and "-"',
            ),
        ],
    ),
    (
        "schedule flow_finished of too many flows",
        without(flow(schedule={"flow_finished": {"flow_ids": [f"{n:0128}" for n in range(40)]}}), "interval"),
        [("schedule.flow_finished.flow_ids", "are too many with names so long: at most 4 KiB of them together")],
    ),
    (
        "schedule no cron",
        without(flow(schedule={"cron": "hourly"}), "interval"),
        [
            (
                "schedule.cron",
                'cannot read "hourly" as cron (Wrong number of fields); give minute, hour, day, month and weekday, '
                'such as "30 9 * * 1-5"',
            )
        ],
    ),
    (
        "schedule no zone",
        without(flow(schedule={"cron": "0 2 * * *", "zone": "Mars/Base"}), "interval"),
        [("schedule.zone", '"Mars/Base" is no time zone; give an IANA name such as "Europe/Berlin" or "UTC"')],
    ),
    (
        "schedule zone without cron",
        without(flow(schedule={"interval": "5m", "zone": "UTC"}), "interval"),
        [("schedule.zone", "goes with cron only")],
    ),
    (
        "schedule at without offset",
        without(flow(schedule={"at": ["2030-01-01T00:00:00"]}), "interval"),
        [
            (
                "schedule.at[0]",
                'cannot read "2030-01-01T00:00:00" as a time; give a time with its offset, such as '
                '"2026-11-21T09:30:00Z" or "2026-11-21T09:30:00+01:00"',
            )
        ],
    ),
    (
        "schedule that ends before it begins",
        without(
            flow(schedule={"interval": "1h", "start": "2030-01-02T00:00:00Z", "end": "2030-01-01T00:00:00Z"}),
            "interval",
        ),
        [("schedule.end", "nothing is planned before it")],
    ),
    (
        "schedule jitter longer than the interval",
        without(flow(schedule={"interval": "1d", "jitter": "2d"}), "interval"),
        [("schedule.jitter", 'must be at most 1d, is "2d"')],
    ),
    (
        "schedule catch_up unknown",
        without(flow(schedule={"interval": "5m", "catch_up": "some"}), "interval"),
        [("schedule.catch_up", 'unknown value "some"; use one of "none", "latest", "all"')],
    ),
    (
        "pause after no failures",
        flow(pause_after_failures=0),
        [("pause_after_failures", "must be a whole number from 1 to 1000, is 0")],
    ),
    ("nodes missing", without(flow(edges=[]), "nodes"), [("nodes", "is required and must hold at least one node")]),
    ("nodes empty", flow(nodes=[], edges=[]), [("nodes", "must hold at least one node")]),
    ("nodes no list", flow(nodes={"a": {}}, edges=[]), [("nodes", "must be a list, is an object")]),
    ("node no object", flow(nodes=[A, "b"], edges=[]), [("nodes[1]", 'must be an object, is "b"')]),
    ("node id missing", flow(nodes=[{"type": "t"}], edges=[]), [("nodes[0].id", "is required")]),
    ("node id empty", flow(nodes=[node("")], edges=[]), [("nodes[0].id", "must not be empty")]),
    ("node id number", flow(nodes=[{"id": 7, "type": "t"}], edges=[]), [("nodes[0].id", "must be text, is 7")]),
    ("node id illegal", flow(nodes=[node("a b")], edges=[]), [("nodes[0].id", f'"a b" {ID_RULE}')]),
    ("node id not ASCII", flow(nodes=[node("é")], edges=[]), [("nodes[0].id", f'"é" {ID_RULE}')]),
    (
        "node id with a line feed",
        flow(nodes=[node("a\n")], edges=[]),
        [("nodes[0].id", f'"a\n" {ID_RULE}')],
    ),
    (
        "node id long",
        flow(nodes=[node("a" * 129)], edges=[]),
        [("nodes[0].id", "must have at most 128 characters, has 129")],
    ),
    (
        "node id twice",
        flow(nodes=[A, node("b"), node("a")]),
        [("nodes[2].id", '"a" is the id of nodes[0] already')],
    ),
    ("node type missing", flow(nodes=[{"id": "a"}], edges=[]), [("nodes[0].type", "is required")]),
    ("node type illegal", flow(nodes=[node("a", "-x")], edges=[]), [("nodes[0].type", f'"-x" {ID_RULE}')]),
    (
        "node field unknown",
        flow(nodes=[node("a", confg={})], edges=[]),
        [("nodes[0].confg", 'unknown field; did you mean "config"?')],
    ),
    (
        "config no object",
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
        "run_if far off",
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
            ("nodes[1].concurrency.limit", 'unknown field; there are "key", "max", "when_full"'),
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
                '"100 a minute" is no rate; write COUNT/UNIT, such as "100/m", the unit being s, m, h or d',
            ),
            ("nodes[2].rate.cost", "must be at most 5, as many as the limit 5/s ever lets begin at once, is 6"),
            ("nodes[3].rate.max", 'unknown field; there are "key", "limit", "cost"'),
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
        "time limits with every field at fault",
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
                'unknown field; there are "schedule_to_start", "start_to_close", "total", "heartbeat"',
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
    ("retry no object", flow(nodes=[node("a", retry=3)], edges=[]), [("nodes[0].retry", "must be an object, is 3")]),
    (
        "retry without attempts",
        flow(nodes=[node("a", retry={"retries": 3})], edges=[]),
        [
            (
                "nodes[0].retry.retries",
                'unknown field; there are "attempts", "initial", "factor", "maximum", "jitter", "non_retryable"',
            ),
            ("nodes[0].retry.attempts", "is required: how often the node may be tried in all, 1 to 1000"),
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
        "retry that waits less in the end than in the beginning",
        flow(nodes=[node("a", retry={"attempts": 2, "initial": "10s", "maximum": "5s"})], edges=[]),
        [("nodes[0].retry.maximum", "must not be less than initial, which is 10")],
    ),
    (
        "retry of one name",
        flow(nodes=[node("a", retry={"attempts": 2, "non_retryable": "ValueError"})], edges=[]),
        [("nodes[0].retry.non_retryable", 'must be a list of texts, is "ValueError"')],
    ),
    ("edges no list", flow(edges="a->b"), [("edges", 'must be a list, is "a->b"')]),
    ("edge no object", flow(edges=[["a", "b"]]), [("edges[0]", "must be an object, is a list")]),
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
        [("edges[0].from", 'unknown field; there are "source", "source_handle", "target", "target_handle"')],
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
        [("edges[1]", 'node "b" feeds itself; an edge joins two nodes')],
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
            ("edges[6]", 'node "d" feeds itself; an edge joins two nodes'),
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
    ("overlap unknown", flow(overlap="Skip"), [("overlap", 'unknown value "Skip"; did you mean "skip"?')]),
    (
        "overlap no text",
        flow(overlap=1),
        [("overlap", 'must be text, is 1; use one of "skip", "queue_one", "queue_all", "cancel_running", "allow"')],
    ),
    (
        "failure policy unknown",
        flow(failure_policy="stop"),
        [
            (
                "failure_policy",
                'unknown value "stop"; use one of "skip_downstream", "fail_fast", "continue"',
            )
        ],
    ),
    ("cycle timeout negative", flow(timeout="-1m"), [("timeout", 'must not be negative, is "-1m"')]),
    (
        "keep_cycles zero",
        flow(keep_cycles=0),
        [("keep_cycles", "must be a whole number from 1 to 10000, is 0")],
    ),
    (
        "keep_cycles many",
        flow(keep_cycles=10_001),
        [("keep_cycles", "must be a whole number from 1 to 10000, is 10001")],
    ),
    (
        "keep_cycles part",
        flow(keep_cycles=1.5),
        [("keep_cycles", "must be a whole number from 1 to 10000, is 1.5")],
    ),
    (
        "keep_cycles text",
        flow(keep_cycles="9"),
        [("keep_cycles", 'must be a whole number from 1 to 10000, is "9"')],
    ),
    (
        "keep_cycles true",
        flow(keep_cycles=True),
        [("keep_cycles", "must be a whole number from 1 to 10000, is true")],
    ),
    ("keep_for short", flow(keep_for="59s"), [("keep_for", 'must be at least 60000ms, is "59s"')]),
    ("keep_for long", flow(keep_for="8d"), [("keep_for", 'must be at most 7d, is "8d"')]),
    ("keep_for zero", flow(keep_for=0), [("keep_for", "must be at least 60000ms, is 0")]),
    ("labels no object", flow(labels=["x"]), [("labels", "must be an object, is a list")]),
    ("label no text", flow(labels={"n": 1}), [("labels.n", "must be text, is 1")]),
    ("label long", flow(labels={"n": "x" * 257}), [("labels.n", "must have at most 256 characters, has 257")]),
    ("label key illegal", flow(labels={"a b": ""}), [('labels["a b"]', f'as the key of a label "a b" {ID_RULE}')]),
    ("labels many", flow(labels={f"k{i}": "" for i in range(33)}), [("labels", "33 labels; at most 32")]),
    (
        "description long",
        flow(description="x" * 4097),
        [("description", "must have at most 4096 characters, has 4097")],
    ),
    ("description no text", flow(description=3), [("description", "must be text, is 3")]),
    ("field unknown", flow(intervall=1), [("intervall", 'unknown field; did you mean "interval"?')]),
    (
        "field far off",
        flow(x=1),
        [
            (
                "x",
                'unknown field; there are "interval", "schedule", "nodes", "edges", "overlap", "failure_policy", '
                '"timeout", "keep_cycles", "keep_for", "max_running" and 5 more',
            )
        ],
    ),
    (
        "field with an odd name",
        flow(**{"no\nde": 1}),
        [('["no\\nde"]', 'unknown field; did you mean "nodes"?')],
    ),
    (
        "secret name illegal",
        flow(nodes=[node("a", config={"key": {"$secret": "my key"}})], edges=[]),
        [("nodes[0].config.key.$secret", f'"my key" {ID_RULE}')],
    ),
    (
        "secret name no text",
        flow(nodes=[node("a", config={"keys": [{"$secret": None}]})], edges=[]),
        [("nodes[0].config.keys[0].$secret", "must be the name of a secret as text, is null")],
    ),
    (
        "secret with more beside it",
        flow(nodes=[node("a", config={"key": {"$secret": "k", "default": "", "x": 1}})], edges=[]),
        [("nodes[0].config.key", 'a secret reference holds "$secret" alone; remove "default", "x"')],
    ),
    (
        "config as a whole a secret",
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
        [("nodes[0].config.x", '"?" holds half of a surrogate pair, which is no Unicode text')],
    ),
    (
        "no JSON value",
        flow(nodes=[node("a", config={"x": b"1"})], edges=[]),
        [("nodes[0].config.x", "a bytes is no JSON value")],
    ),
    (
        "key no text",
        flow(nodes=[node("a", config={1: 2})], edges=[]),
        [("nodes[0].config", "1 is no key; keys are text")],
    ),
]
