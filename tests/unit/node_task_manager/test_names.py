"""Names of runs and node tasks, and fencing tokens: they survive a round trip, whatever the ids contain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.node_task_manager.domain.names import RunName, TaskName, Token

identifiers = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z")
numbers = st.integers(0, 2**31 - 1)


@given(identifiers, numbers, numbers, identifiers)
def test_node_task_id_parses_into_its_parts(flow_id: str, cycle: int, run: int, node_id: str) -> None:
    name = RunName(flow_id, cycle, run)
    task_id = name.task_id(node_id)

    assert TaskName.parse(task_id) == TaskName(name, node_id)
    assert task_id == f"{name}:{node_id}"
    assert RunName.of_node_task(task_id) == name


@given(identifiers, numbers, numbers, identifiers, numbers)
def test_item_id_parses_into_node_and_index(flow_id: str, cycle: int, run: int, node_id: str, item: int) -> None:
    node_task = RunName(flow_id, cycle, run).task_id(node_id)
    name = TaskName.parse(f"{node_task}:{item}")

    assert name == TaskName(RunName(flow_id, cycle, run), node_id, item)
    assert RunName.of_node_task(f"{node_task}:{item}") == name.run
    assert (name.mapped, name.within_run) == (node_task, f"{node_id}:{item}")
    assert (TaskName.parse(node_task).mapped, TaskName.parse(node_task).within_run) == ("", node_id)


@given(identifiers, identifiers)
def test_ad_hoc_names_parse_into_their_parts(id: str, item: str) -> None:
    task, batch = RunName.of_task(id), RunName.of_batch(id)

    assert (str(task), task.task_id(""), task.batch_id) == (f"task:{id}", f"task:{id}", "")
    assert TaskName.parse(f"task:{id}") == TaskName(task, "")
    assert (batch.task_id(item), batch.batch_id) == (f"batch:{id}:{item}", id)
    assert TaskName.parse(f"batch:{id}:{item}") == TaskName(batch, item)
    assert (RunName.of_node_task(f"task:{id}"), RunName.of_node_task(f"batch:{id}:{item}")) == (task, batch)
    # A flow may have such a name too.
    assert TaskName.parse(f"task:1:0:{item}") == TaskName(RunName("task", 1, 0), item)
    assert RunName.of_node_task(f"task:1:0:{item}") == RunName("task", 1, 0)


def test_ids_with_underscores_and_digits_do_not_collide() -> None:
    assert RunName("a_1", 2, 0).task_id("b") != RunName("a", 1, 0).task_id("2_b")
    assert TaskName.parse("a_1:2:0:b").run.flow_id == "a_1"


@given(numbers, identifiers, numbers, identifiers, st.integers(1, 1000), st.from_regex(r"\A[0-9a-f]{1,16}\Z"))
def test_token_parses_into_its_parts(
    shard: int, flow_id: str, cycle: int, node_id: str, attempt: int, nonce: str
) -> None:
    token = Token(shard, RunName(flow_id, cycle, 0).task_id(node_id), attempt, nonce)

    assert Token.parse(str(token)) == token


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a:1:0",
        "task:",
        "task:a b",
        "batch:b",
        "batch::1",
        "flow:b",
        "a:1:0:b:c",
        "a:x:0:b",
        "a:1:-1:b",
        "a b:1:0:c",
        "a:1:0:c/d",
        ":1:0:b",
        "a:2147483648:0:b",
        "a:1:2147483648:b",
        "a:1:0:b:2147483648",
        "a:1:0:b\n",
    ],
)
def test_invalid_node_task_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not <flow_id>|invalid flow or node id"):
        TaskName.parse(text)


@pytest.mark.parametrize(
    "text", ["", "rubbish", "0~a:0:0:b~1", "x~a:0:0:b~1~n", "0~a:0:0:b~x~n", "0~a:0:0:b~1~", "2147483648~a:0:0:b~1~n"]
)
def test_invalid_token_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a token"):
        Token.parse(text)
