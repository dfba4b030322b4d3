"""Flow definitions with a fault in one of their own fields: name, definition, and the fault's path and sentence."""

from typing import Any

from tests.unit.scheduler.flows import flow, node

FORMS = 'give seconds as a number, or text such as "500ms", "5s", "5m", "1h" or "1d"'
ID_RULE = 'must begin with a letter or digit and contain only letters, digits, ".", "_" and "-"'
A = node("a")


def without(weather: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in weather.items() if key != name}


FLOW_CASES: list[tuple[str, Any, list[tuple[str, str]]]] = [
    ("not an object", [], [("flow", "must be an object with interval, nodes and edges, is a list")]),
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
        [("interval", "put the interval into schedule, or remove schedule")],
    ),
    (
        "cron beside schedule",
        {**without(flow(), "interval"), "cron": "0 * * * *"},
        [("cron", 'belongs in schedule: write "schedule": {"cron": "0 * * * *"}')],
    ),
    (
        "event beside schedule",
        {**without(flow(), "interval"), "event": {"name": "price"}},
        [("event", 'belongs in schedule: write "schedule": {"event": ...}')],
    ),
    (
        "jitter beside schedule",
        flow(jitter="5s"),
        [("jitter", 'belongs in schedule, beside "interval", "cron", "at", "event", "flow_finished"')],
    ),
    (
        "interval is cron",
        flow(interval="0 * * * *"),
        [("interval", 'is a cron expression: write "schedule": {"cron": "0 * * * *"}')],
    ),
    (
        "schedule is cron",
        without(flow(schedule="@daily"), "interval"),
        [("schedule", 'is a cron expression: write "schedule": {"cron": "@daily"}')],
    ),
    (
        "schedule is text",
        without(flow(schedule="5m"), "interval"),
        [("schedule", 'must be an object, such as {"cron": "0 * * * *"}, is "5m"')],
    ),
    (
        "schedule empty",
        without(flow(schedule={}), "interval"),
        [("schedule", "must have exactly one of interval, cron, at, event and flow_finished, has none")],
    ),
    (
        "schedule with two kinds",
        without(flow(schedule={"cron": "0 2 * * *", "interval": "5m"}), "interval"),
        [("schedule", "must have exactly one of interval, cron, at, event and flow_finished, has interval and cron")],
    ),
    (
        "schedule event without a name",
        without(flow(schedule={"event": {"filter": {"price": {"$about": 3}}}}), "interval"),
        [
            ("schedule.event.name", "is required"),
            (
                "schedule.event.filter",
                "price.$about: is not an operator; use $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin or $exists",
            ),
        ],
    ),
    (
        "schedule event with unknown fields",
        without(flow(schedule={"event": {"name": "price", "filters": {"symbol": "AAPL"}}}), "interval"),
        [("schedule.event.filters", 'unknown field; did you mean "filter"?')],
    ),
    (
        "schedule event with a reserved name",
        without(flow(schedule={"event": {"name": "flow.finished"}}), "interval"),
        [
            (
                "schedule.event.name",
                '"flow.finished" is reserved, as is every name that begins with "flow."; '
                "use flow_finished with flow_ids",
            )
        ],
    ),
    (
        "schedule event with fields of planned times",
        without(flow(schedule={"event": {"name": "a"}, "jitter": "5s", "catch_up": "all", "zone": "UTC"}), "interval"),
        [
            ("schedule.zone", "is only allowed together with cron"),
            ("schedule.jitter", "is only allowed with planned times, not with events"),
            ("schedule.catch_up", "is only allowed with planned times, not with events"),
        ],
    ),
    (
        "schedule event that ends before it begins",
        without(
            flow(schedule={"event": {"name": "a"}, "start": "2030-01-02T00:00:00Z", "end": "2030-01-01T00:00:00Z"}),
            "interval",
        ),
        [("schedule.end", "must be after start")],
    ),
    (
        "schedule flow_finished of any flow",
        without(flow(schedule={"flow_finished": {"statuses": ["done"]}}), "interval"),
        [
            (
                "schedule.flow_finished.flow_ids",
                "must name 1 to 100 flows: if any flow counted, this one would start itself",
            ),
            (
                "schedule.flow_finished.statuses[0]",
                '"done" is not a final status of a cycle; use any of '
                '"completed", "partial", "failed", "timeout", "cancelled"',
            ),
        ],
    ),
    (
        "schedule flow_finished of illegal flow ids",
        without(flow(schedule={"flow_finished": {"flow_ids": ["a b"], "flow": "x"}}), "interval"),
        [
            ("schedule.flow_finished.flow", 'unknown field; did you mean "flow_ids"?'),
            (
                "schedule.flow_finished.flow_ids[0]",
                '"a b" must begin with a letter or digit and contain only letters, digits, ".", "_" and "-"',
            ),
        ],
    ),
    (
        "schedule flow_finished of too many flows",
        without(flow(schedule={"flow_finished": {"flow_ids": [f"{n:0128}" for n in range(40)]}}), "interval"),
        [("schedule.flow_finished.flow_ids", "the names are too long: at most 4 KiB in all")],
    ),
    (
        "schedule with invalid cron",
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
        "schedule with unknown zone",
        without(flow(schedule={"cron": "0 2 * * *", "zone": "Mars/Base"}), "interval"),
        [("schedule.zone", '"Mars/Base" is not a time zone; give an IANA name such as "Europe/Berlin" or "UTC"')],
    ),
    (
        "schedule with invalid cron and zone",
        without(flow(schedule={"cron": "hourly", "zone": "Mars/Base"}), "interval"),
        [
            (
                "schedule.cron",
                'cannot read "hourly" as cron (Wrong number of fields); give minute, hour, day, month and weekday, '
                'such as "30 9 * * 1-5"',
            ),
            ("schedule.zone", '"Mars/Base" is not a time zone; give an IANA name such as "Europe/Berlin" or "UTC"'),
        ],
    ),
    (
        "schedule zone without cron",
        without(flow(schedule={"interval": "5m", "zone": "UTC"}), "interval"),
        [("schedule.zone", "is only allowed together with cron")],
    ),
    (
        "schedule cron not text, with unknown zone",
        without(flow(schedule={"cron": 5, "zone": "Mars/Base"}), "interval"),
        [
            ("schedule.cron", "must be text, is 5"),
            ("schedule.zone", '"Mars/Base" is not a time zone; give an IANA name such as "Europe/Berlin" or "UTC"'),
        ],
    ),
    (
        "schedule cron too long, with a zone",
        without(flow(schedule={"cron": "0 " * 200, "zone": "UTC"}), "interval"),
        [("schedule.cron", "must have at most 256 characters, has 400")],
    ),
    (
        "schedule cron empty",
        without(flow(schedule={"cron": ""}), "interval"),
        [
            (
                "schedule.cron",
                'cannot read "" as cron (Wrong number of fields); give minute, hour, day, month and weekday, '
                'such as "30 9 * * 1-5"',
            )
        ],
    ),
    (
        "schedule at before 1970, and after 9999 by its offset",
        without(flow(schedule={"at": ["1960-01-01T00:00:00Z", "9999-12-31T23:59:59-23:00"]}), "interval"),
        [
            ("schedule.at[0]", 'must be between 1970 and 9999 in UTC, is "1960-01-01T00:00:00Z"'),
            ("schedule.at[1]", 'must be between 1970 and 9999 in UTC, is "9999-12-31T23:59:59-23:00"'),
        ],
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
        "schedule jitter longer than a short interval",
        without(flow(schedule={"interval": "5m", "jitter": "6m"}), "interval"),
        [("schedule.jitter", 'must be at most 300s, is "6m"')],
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
        "pause_after_failures zero",
        flow(pause_after_failures=0),
        [("pause_after_failures", "must be a whole number from 1 to 1000, is 0")],
    ),
    ("overlap unknown", flow(overlap="Skip"), [("overlap", 'unknown value "Skip"; did you mean "skip"?')]),
    (
        "overlap not text",
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
        "keep_cycles too large",
        flow(keep_cycles=10_001),
        [("keep_cycles", "must be a whole number from 1 to 10000, is 10001")],
    ),
    (
        "keep_cycles fractional",
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
    ("keep_for too short", flow(keep_for="59s"), [("keep_for", 'must be at least 60000ms, is "59s"')]),
    ("keep_for too long", flow(keep_for="8d"), [("keep_for", 'must be at most 7d, is "8d"')]),
    ("keep_for zero", flow(keep_for=0), [("keep_for", "must be at least 60000ms, is 0")]),
    ("labels not an object", flow(labels=["x"]), [("labels", "must be an object, is a list")]),
    ("label not text", flow(labels={"n": 1}), [("labels.n", "must be text, is 1")]),
    ("label too long", flow(labels={"n": "x" * 257}), [("labels.n", "must have at most 256 characters, has 257")]),
    ("label key illegal", flow(labels={"a b": ""}), [('labels["a b"]', f'label key "a b" {ID_RULE}')]),
    ("too many labels", flow(labels={f"k{i}": "" for i in range(33)}), [("labels", "33 labels; at most 32")]),
    (
        "description too long",
        flow(description="x" * 4097),
        [("description", "must have at most 4096 characters, has 4097")],
    ),
    ("description not text", flow(description=3), [("description", "must be text, is 3")]),
    ("field unknown", flow(intervall=1), [("intervall", 'unknown field; did you mean "interval"?')]),
    (
        "field unlike any other",
        flow(x=1),
        [
            (
                "x",
                'unknown field; use one of "interval", "schedule", "nodes", "edges", "overlap", "failure_policy", '
                '"timeout", "keep_cycles", "keep_for", "max_running", "pause_after_failures", "on_failure", "finally", '
                '"labels", "description"',
            )
        ],
    ),
    (
        "field with an odd name",
        flow(**{"no\nde": 1}),
        [('["no\\nde"]', 'unknown field; did you mean "nodes"?')],
    ),
]
