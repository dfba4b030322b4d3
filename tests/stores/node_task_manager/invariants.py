"""What must hold for the raw keys of a shard, whatever has happened."""

from collections import Counter, defaultdict

import msgspec

from tests.servers import RedisServer, assert_no_leaked_keys
from tests.stores.node_task_manager.item_invariants import check_items
from tests.stores.node_task_manager.raw_keys import BASE, OPEN, TERMINAL, Keys, read_keys, run_of
from tradewind.node_task_manager.domain.names import TaskName

ANY_SHARD = "trading_flow:{s*}:"
LASTING = (
    f"{ANY_SHARD}events:*",
    f"{ANY_SHARD}events_epoch:*",
    f"{ANY_SHARD}last_events",
    f"{ANY_SHARD}queue:stats",
    f"{ANY_SHARD}queue:cleaned",
    f"{ANY_SHARD}system:config",
    f"{ANY_SHARD}user_weights",
)
"""Keys that stay when all runs have ended, their events are acknowledged and a day has passed."""
WORKING = tuple(
    ANY_SHARD + name
    for name in (
        *("run:*", "plan:*", "task_events:*", "kept:*", "items:*", "flow_runs:*", "user_runs:*", "node_tasks_list"),
        *("to_clean", "walks", "ended_runs", "delayed", "start_deadlines", "inflight", "worker_tasks:*", "todo"),
        *("ready:*", "ready_types", "ring:*", "left:*", "blocked:*", "blocked_by:*", "blocked_of", "parked", "slots:*"),
        "cache_stats",
    )
)
"""Keys that have no time to live while runs are open, and indexes that are swept or empty themselves."""
NOTICES = ("notifications", "notifications_read", "notified")


async def check_invariants(server: RedisServer) -> None:
    """Check that every record is in exactly the indexes that its status asks for, and that counts and TTLs fit."""
    keys = await read_keys(server)
    assert keys.todo == 0, "work was left"
    _check_indexes(keys)
    _check_queues(keys)
    _check_limits(keys)
    _check_retries(keys)
    _check_counts(keys)
    check_items(keys)
    _check_signal_counts(keys)
    _check_times_to_live(keys)
    _check_lists(keys)


async def check_no_key_leaks(server: RedisServer) -> None:
    """Check that whatever has no time to live is of an open run, empties itself, or is documented to stay."""
    _check_times_to_live(await read_keys(server))
    await assert_no_leaked_keys(server, (*LASTING, *WORKING))


async def check_nothing_left(server: RedisServer) -> None:
    """Check that, when all has ended and a day has passed, only documented keys lack a time to live."""
    await assert_no_leaked_keys(server, LASTING)


async def expire_all(server: RedisServer) -> None:
    """Delete the records of runs that have a time to live, as if a day had passed."""
    admin = server.connect()
    for name in await server.keys():
        if name.startswith(f"{BASE}run:") and await admin.pttl(name) >= 0:
            await admin.delete(name)


def _check_indexes(keys: Keys) -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name, members in keys.sets.items():
        of_tasks = ("ready:", "worker_tasks:", "blocked:", "slots:")
        if name.startswith(of_tasks) or name in ("inflight", "start_deadlines", "delayed"):
            for member in members:
                if not member.startswith("|"):
                    places[member].append(name)
    for task_id, task in keys.tasks.items():
        run = run_of(task_id)
        found, expected = sorted(places.pop(task_id, [])), []
        if task["status"] == "running" and "worker_id" not in task:
            expected = ["delayed"] if int(task.get("retry_at", 0)) else []
        elif task["status"] == "running":
            slots = [f"slots:{limit}" for limit in task.get("slots", "").split()]
            expected = sorted(["inflight", f"worker_tasks:{task['worker_id']}", *slots])
        elif task["status"] in ("pending", "suspended") and int(task.get("retry_at", 0)):
            expected = ["delayed"]
        elif task["status"] == "pending":
            node, user = keys.node(task, run), keys.components[f"{run}:{task['component_id']}"]["user_id"]
            place = f"blocked:{task['blocked']}" if task.get("blocked") else f"ready:{node['type']}:{user}"
            expected = [place, *(["start_deadlines"] if node["start"] or "total" in node else [])]
        assert found == expected, (task_id, task, found)
    assert not places, f"indexes name what has no record: {dict(places)}"


def _check_signal_counts(keys: Keys) -> None:
    """A run counts the signals that are kept for it."""
    for name, run in keys.runs.items():
        lists = keys.signals[name]
        kept = sum(len(msgspec.msgpack.decode(each.encode(errors="surrogateescape"))) for each in lists)
        assert int(run.get("kept", 0)) == kept, (name, run)


def _check_retries(keys: Keys) -> None:
    """No more attempts fail than the policy allows; exactly the node tasks that wait for a retry are delayed."""
    for task_id, task in keys.tasks.items():
        failures, retry_at = int(task.get("failures", 0)), int(task.get("retry_at", 0))
        policy = keys.node(task, run_of(task_id)).get("retry")
        assert failures <= (policy["attempts"] if policy else 1), (task_id, task)
        assert failures + int(task.get("lost", 0)) <= int(task.get("attempt", 0)), (task_id, task)
        assert keys.sets.get("delayed", {}).get(task_id, 0) == retry_at, (task_id, task)
        letters = keys.sets.get(f"dead_letters:{keys.owner(task, task_id)['user_id']}", {})
        given_up = task["status"] == "failed" and (policy is not None or int(task.get("lost", 0)) >= 3)
        assert (task_id in letters) <= given_up, (task_id, task)
        if policy and task["status"] not in TERMINAL:
            assert failures < policy["attempts"], (task_id, task)


def _check_queues(keys: Keys) -> None:
    queues = sorted(name.removeprefix("ready:") for name in keys.sets if name.startswith("ready:"))
    rings = sorted(
        f"{name.removeprefix('ring:')}:{user}"
        for name, users in keys.sets.items()
        if name.startswith("ring:")
        for user in users
    )
    parked = {":".join(reversed(member.split(":"))) for member in keys.sets.get("parked", {})}
    assert set(rings) <= set(queues) <= {*rings, *parked}, "users that have ready node tasks have turns, or are parked"
    types = {ring.partition(":")[0] for ring in rings}
    assert {name.removeprefix("left:") for name in keys.sets if name.startswith("left:")} <= types, "nobody has turns"
    assert types == set(keys.sets.get("ready_types", {})), "types with ready node tasks"


def _check_limits(keys: Keys) -> None:
    """Nobody waits for a limit that has room, unless a node task under that limit is queued for each free slot."""
    groups = {name.removeprefix("blocked:") for name in keys.sets if name.startswith("blocked:")}
    indexed = {member.partition("|")[2] for member in keys.sets.get("blocked_of", {})}
    assert groups <= indexed, "the indexes name every group that waits"
    for group in groups:
        limit, _, rest = group.partition("|")
        node_type, user, most = rest.split(":")
        if limit.startswith("pace:"):
            assert f"|{limit}" in keys.sets.get("delayed", {}), f"nobody will look at {group} again"
            continue
        free = int(most) - len(keys.sets.get(f"slots:{limit}", {}))
        queued = [
            task_id
            for task_id in keys.sets.get(f"ready:{node_type}:{user}", {})
            if limit in keys.own_limits(task_id, user)
        ]
        assert free <= len(queued), f"{group} waits while {free} slots are free and {len(queued)} are let in"
    for member in keys.sets.get("parked", {}):
        user = member.partition(":")[0]
        assert keys.sets.get(f"slots:user:{user}"), f"{member} is parked, and nothing of {user} runs"


def _check_counts(keys: Keys) -> None:
    in_use: Counter[str] = Counter()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    parts: dict[str, list[dict[str, str]]] = defaultdict(list)
    for task_id, task in keys.tasks.items():
        if TaskName.parse(task_id).item >= 0:
            continue
        counts[f"{run_of(task_id)}:{task['component_id']}"][task["status"]] += 1
    for name, component in keys.components.items():
        assert component["status"] != "purged", name
        for status in TERMINAL:
            assert int(component.get(status, 0)) == counts[name][status], (name, status, component, counts[name])
        ended = sum(counts[name][status] for status in TERMINAL)
        assert (component["status"] == "finished") == (ended == int(component["nodes"])), (name, component)
        in_use[component["plan"]] += component["status"] != "finished"
        parts[name.rpartition(":")[0]].append(component)
    for digest, plan in keys.plans.items():
        assert int(plan.get(b"open", 0)) == in_use[digest], f"components that use plan {digest}"
    open_runs = keys.open_runs()
    for name, run in keys.runs.items():
        packed = run.get("components", "").encode(errors="surrogateescape")
        count = len(msgspec.msgpack.decode(packed)) if packed else 1
        left = sum(each["status"] != "finished" for each in parts[name])
        assert len(parts[name]) == count, (name, run)
        assert count == 1 or int(run["open"]) == left, (name, run)
    listed = {
        member: score
        for name, each in keys.sets.items()
        if name.startswith("user_runs:")
        for member, score in each.items()
    }
    for name, component in keys.components.items():
        owner = name.rpartition(":")[0]
        if component["partition"] == "-1":
            # Listed while its records are kept, on top until it ends; then it is also in the index of runs that expire.
            ended = f"{component['user_id']}:{owner}" in keys.sets.get("ended_runs", {})
            assert not (ended and owner in open_runs), owner
            score = int(component["submitted_at"]) + (OPEN if owner in open_runs else 0)
            assert listed.get(owner) == (score if ended or owner in open_runs else None), owner
            assert int(component.get("running", 0)) == counts[name]["running"], (name, component)


def _check_times_to_live(keys: Keys) -> None:
    open_runs = keys.open_runs()
    for name, ttl in keys.ttls.items():
        kind, _, rest = name.partition(":")
        if kind == "run" and not keys.has_later_run(rest):
            assert (ttl == -1) == (rest in open_runs), (name, ttl)
        elif kind == "run":
            cycle, _, number = rest.rpartition(":")
            later = f"{cycle}:{int(number) + 1}"
            # Once all runs have been cleaned, each stays as long as the next; while the later one is open, for good.
            unsettled = (each.removeprefix("run:") for each in keys.sets.get("to_clean", {}))
            settled = not any(each.startswith(f"{cycle}:") and each not in open_runs for each in unsettled)
            assert (ttl == -1) == (keys.ttls[f"run:{later}"] == -1) or not settled, (name, ttl)
            assert ttl == -1 or later not in open_runs or not settled, (name, ttl)
        elif kind == "task_events":
            lasts = rest in open_runs if rest.startswith("task:") else not keys.has_ended(rest)
            assert (ttl == -1) == lasts, (name, ttl)
        elif kind == "plan":
            assert (ttl == -1) == (int(keys.plans[rest].get(b"open", 0)) > 0), (name, ttl)
        elif kind in (
            "stop",
            "purged",
            "worker_session",
            "worker_incarnation",
            "logs",
            "flow_logs",
            *NOTICES,
        ):
            assert ttl > 0, (name, ttl)


def _check_lists(keys: Keys) -> None:
    """Every record is in the list of all node tasks, and the latest run of a cycle is in the index of its flow.

    The index marks the run as open until it has been looked at after its end.
    """
    assert keys.tasks.keys() <= keys.sets.get("node_tasks_list", {}).keys(), "node tasks that the list does not have"
    open_runs = keys.open_runs()
    for run in keys.runs:
        if run.startswith(("task:", "batch:")) or keys.has_later_run(run):
            continue
        flow, _, name = run.partition(":")
        cycle, number = map(int, name.split(":"))
        looked_at = f"run:{run}" in keys.sets.get("to_clean", {})
        is_open = OPEN if run in open_runs or looked_at else 0
        assert keys.sets[f"flow_runs:{flow}"][name] == cycle * 1024 + number + is_open, (run, is_open)
        assert run not in open_runs or looked_at, f"nobody would ask whether {run} is still open"
    for name, members in keys.sets.items():
        if name.startswith("flow_runs:"):
            runs = {f"{name.removeprefix('flow_runs:')}:{member}" for member in members}
            assert runs <= keys.runs.keys(), (name, runs - keys.runs.keys())
