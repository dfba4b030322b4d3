"""`tradewind queue` and `tradewind config` with piped output."""

from tests.unit.cli.shell import Shell
from tests.unit.client.fake_stack import FakeStack
from tradewind.api.node_task_manager.v1 import queue_pb2


def test_queue_prints_depths_and_totals(shell: Shell) -> None:
    assert shell("queue").lines == [
        "NODE TYPE  USER  QUEUED  RUNNING  WAITING SINCE",
        "model      ann   3       2        2030-03-17T17:46:40.000Z",
        "3 queued, 2 running",
        "ended so far: 7 completed, 1 failed (TIMEOUT 1), 0 terminated, 0 skipped",
        "cleaned so far: 4 runs with 9 node tasks, 2 index entries",
    ]
    assert shell("queue", "-o", "json").json["queues"][0]["queued"] == 3


def test_queue_shows_the_longest_of_many_queues(shell: Shell, stack: FakeStack) -> None:
    stack.node_task_manager.queues = [
        queue_pb2.QueueDepth(node_type="model", user_id=f"user{at}", queued=at % 7) for at in range(20)
    ]
    ran = shell("queue", "--limit", "2")
    assert [line.split()[:3] for line in ran.lines[1:3]] == [["model", "user13", "6"], ["model", "user6", "6"]]
    assert ran.err == "note: there are more queues; --limit shows them\n"
    as_json = shell("queue", "--limit", "2", "-o", "json").json
    assert [each["user_id"] for each in as_json["queues"]] == ["user13", "user6"]


def test_config_get_and_set_limits_and_caches(shell: Shell) -> None:
    assert shell("config", "get").lines == [
        "max_running           5",
        "max_running_per_user  none",
        "max_running_per_flow  none",
        "max_concurrent_tasks  none",
        "enable_cache          true",
        "cache_ttl             1h",
        "caches.screening      1h",
        "user_weights.ann      2.0",
    ]
    changed = shell(
        "config",
        "set",
        "max_running=none",
        "max_running_per_user=3",
        "user_weights.bob=0.5",
        "rates.feed=100/m",
        "-o",
        "json",
    )
    assert (changed.json["max_running"], changed.json["max_running_per_user"]) == (0, 3)
    assert changed.json["user_weights"] == {"ann": 2.0, "bob": 0.5}
    assert changed.json["rates"] == {"feed": "100/m"}
    changed = shell("config", "set", "enable_cache=false", "cache_ttl=5m", "caches.mine=90", "-o", "json")
    assert (changed.json["enable_cache"], changed.json["cache_ttl"]) == (False, 300.0)
    assert changed.json["caches"]["mine"] == {"ttl": 90.0, "max_entries": 10_000}
    assert changed.json["caches"]["screening"] == {"ttl": None, "max_entries": 10}


def test_config_set_refuses_malformed_setting_before_calling_server(shell: Shell) -> None:
    for setting, message in {
        "max_runing=1": "is not a setting; write NAME=VALUE with one of these names: max_running, ",
        "max_running.x=1": "is not a setting",
        "max_running=many": '"many" is not a whole number',
        "max_running=0": "a limit must be at least 1; use none to remove it",
        "max_running": "is not a setting",
        "enable_cache=maybe": "must be true or false",
        "cache_ttl=soon": "is not a length of time",
        "cache_ttl=none": "is not a length of time",
        "cache_ttl=9999999999999d": '"9999999999999d" is too long',
        "user_weights.bob=much": '"much" is not a number',
        "caches=5": "is not a setting",
    }.items():
        assert message in shell("--address", "localhost:1", "config", "set", setting, ends=2).err
