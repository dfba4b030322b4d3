"""Flows from files, and the messages about files that hold none."""

import json
import pickle
from pathlib import Path

import pytest

from tradewind.flow import FlowFileError, parse_flow, read_flow

WEATHER = {
    "interval": "1s",
    "labels": {"team": "research"},
    "nodes": [
        {"id": "feed", "type": "price_feed"},
        {"id": "fast", "type": "moving_average", "config": {"window": 3, "exact": True, "note": None, "share": 0.5}},
    ],
    "edges": [{"source": "feed", "source_handle": "prices", "target": "fast", "target_handle": "prices"}],
}
YAML = """
# A comment
interval: 1s
labels: {team: research}
nodes:
  - {id: feed, type: price_feed}
  - id: fast
    type: moving_average
    config:
      window: 3
      exact: true
      note: ~
      share: .5
edges:
  - {source: feed, source_handle: prices, target: fast, target_handle: prices}
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("momentum.json", json.dumps(WEATHER)),
        ("momentum.json", "\ufeff" + json.dumps(WEATHER, indent="\t")),
        ("momentum.yaml", YAML),
        ("momentum.YML", YAML),
        ("momentum.yaml", json.dumps(WEATHER)),
        ("momentum", json.dumps(WEATHER)),
        ("momentum.flow", YAML),
    ],
)
def test_json_and_yaml_files_give_the_same_flow(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    flow = read_flow(file)
    assert flow.to_weather() == WEATHER
    assert flow.flow_id == "momentum"
    assert read_flow(str(file), "other").flow_id == "other"
    assert parse_flow(text.lstrip("\ufeff"), "f").to_weather() == WEATHER


def test_suffix_of_a_file_decides_on_its_language(tmp_path: Path) -> None:
    yaml, weather = "{interval: 1s, nodes: [], edges: []}", {"interval": "1s", "nodes": [], "edges": []}
    for name in ("f.yaml", "f.json"):
        (tmp_path / name).write_text(yaml)
    assert read_flow(tmp_path / "f.yaml").to_weather() == weather
    with pytest.raises(FlowFileError, match="is not JSON"):
        read_flow(tmp_path / "f.json")


def test_momentum_example_is_read_unchanged() -> None:
    file = Path(__file__).parents[3] / "examples" / "momentum" / "flow.json"
    assert read_flow(file).to_weather() == json.loads(file.read_text(encoding="utf-8"))


def test_yaml_has_only_value_types_of_json() -> None:
    text = (
        "{a: yes, b: 2020-01-01, c: 1:30, d: 0x10, e: 007, f: 1e3, g: -.5, h: 'x', i: no, j: +1, k: .nan, l: '1', m: }"
    )
    weather = parse_flow("values: " + text, "f").to_weather()
    assert weather["values"] == {
        "a": "yes",
        "b": "2020-01-01",
        "c": "1:30",
        "d": "0x10",
        "e": "007",
        "f": 1000.0,
        "g": -0.5,
        "h": "x",
        "i": "no",
        "j": 1,
        "k": ".nan",
        "l": "1",
        "m": None,
    }


def test_yaml_anchors_and_merge_keys_are_expanded() -> None:
    weather = parse_flow(
        "common: &c {window: 3, mode: fast}\nnodes: [{config: *c}, {config: {<<: *c, window: 8}}]\n", "f"
    ).to_weather()
    assert [node["config"] for node in weather["nodes"]] == [
        {"window": 3, "mode": "fast"},
        {"window": 8, "mode": "fast"},
    ]


def test_exponential_yaml_aliases_are_refused() -> None:
    levels = [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 8)]
    with pytest.raises(FlowFileError, match=r"^f:7:30: has more than 1000000 values, counting those that aliases"):
        parse_flow("\n".join(["a0: &a0 [1]", *levels]), "f", "f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "flow: is empty"),
        (" \n", "flow: is empty"),
        ("# nothing\n", "flow: a flow is an object with interval, nodes and edges, not null"),
        ("just text", "flow:1:1: a flow is an object with interval, nodes and edges, not text"),
        ("[1]", "flow:1:1: a flow is an object with interval, nodes and edges, not a list"),
        ('{"interval": 1,\n "nodes": [}', "flow:2:12: is not JSON: Expecting value"),
        ('{"nodes": [{}, ]}', "flow:1:14: is not JSON: Illegal trailing comma before end of array"),
        ('{"nodes": [],\n}', "flow:1:13: is not JSON: Illegal trailing comma before end of object"),
        ('{"labels": {}, "interval": 1,\n "interval": 2}', 'flow:2:2: "interval" occurs twice in one object'),
        ('{"interval": NaN}', "flow: is not JSON: NaN is not a JSON number"),
        ('{"a": ' * 100_000, "flow: is not JSON: it is nested too deeply"),
        ('{"nodes": [\n  {},\n  3\n]}', "flow:3:3: nodes[1]: must be an object, is a number"),
        ('{"edges":\n {"a": 1}}', "flow:2:2: edges: must be a list, is an object"),
        (
            "interval: 1\nnodes: [",
            "flow:3:1: is not YAML: while parsing a flow node, did not find expected node content",
        ),
        ("interval: 1\nnodes:\n\t- id: a", "flow:3:1: is not YAML: a tab; YAML is indented with spaces"),
        ("nodes:\n  - id: a\n\t  type: b", "flow:3:1: is not YAML: a tab; YAML is indented with spaces"),
        ("nodes:\n  -\tid: a\n  \ttype: b", "is not YAML: a tab; YAML is indented with spaces"),
        ("interval: 1\ninterval: 2", 'flow:2:1: "interval" occurs twice in one object'),
        ("nodes:\n  - id: a\n    config: {1: 2}", "flow:3:14: a key must be text: put it in quotes"),
        ("? !!str [a]\n: 1", "flow:1:3: a key must be text: put it in quotes"),
        ("nodes:\n  - 3\n", "flow:2:5: nodes[0]: must be an object, is a number"),
        ("a: !!python/object:os.system 1", "flow:1:4: is not YAML: could not determine a constructor"),
        ("a: *b", "flow:1:4: is not YAML: found undefined alias"),
        ("a: !!bool maybe", "flow: is not YAML: a value does not match its tag (!!)"),
        ("a: !!int ''", "flow: is not YAML: a value does not match its tag (!!)"),
        ("a: !!timestamp soon", "flow: is not YAML: a value does not match its tag (!!)"),
        ("a: 1\n---\na: 2", "is not YAML: "),
        ("nodes:\n- &n\n  config: *n\n", "is nested more than 100 levels deep"),
        (
            "nodes:\n- id: a\n  config: &c [*c]\n",
            f"flow:3:11: nodes[0].config{'[0]' * 15}…: is nested more than 100 levels deep",
        ),
        ('{"description": "\\ud800"}', "flow: description: has '\\ud800', half a character"),
        ('{"\\ud800": 1}', "flow: has '\\ud800', half a character"),
        ("a: " + "[" * 100_000, "flow"),
    ],
)
def test_faults_are_reported_with_file_and_line(text: str, message: str) -> None:
    with pytest.raises(FlowFileError) as caught:
        parse_flow(text, "f", "flow")
    assert message in str(caught.value)
    assert caught.value.file == "flow"


def test_error_has_line_column_and_path_as_attributes() -> None:
    with pytest.raises(FlowFileError) as caught:
        parse_flow("nodes:\n  - 3\n", "f", "flow.yaml")
    error = caught.value
    assert (error.line, error.column, error.path, error.message) == (
        2,
        5,
        "nodes[0]",
        "must be an object, is a number",
    )
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.line) == (str(error), 2)


def test_missing_and_non_utf_8_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_flow(tmp_path / "missing.json")
    file = tmp_path / "flow.json"
    file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(FlowFileError, match=r"flow\.json: is not UTF-8 text: the byte at offset 7"):
        read_flow(file)
