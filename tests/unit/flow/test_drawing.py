"""Pictures of flows."""

import time

from tradewind.flow import Flow


def momentum() -> Flow:
    flow = Flow("momentum", "1s")
    feed = flow.node("feed", "price_feed")
    fast = flow.node("fast", "moving_average")
    lone = flow.node("end", 'say "hi" & <go>')
    cross = flow.node("cross", "crossover")
    feed["prices"] >> fast["prices"]
    feed["prices"] >> cross["prices"]
    fast["average"] >> cross["fast"]
    assert lone.id == "end"
    return flow


def test_text_lists_nodes_in_execution_order() -> None:
    assert momentum().to_text() == (
        "feed (price_feed)\n"
        "├─ prices → fast.prices\n"
        "└─ prices → cross.prices\n"
        "  fast (moving_average)\n"
        "  └─ average → cross.fast\n"
        "    cross (crossover)\n"
        "\n"
        'end (say "hi" & <go>)'
    )
    assert momentum().to_text(unicode=False).splitlines()[1:3] == [
        "|- prices -> fast.prices",
        "`- prices -> cross.prices",
    ]


def test_mermaid_escapes_labels() -> None:
    assert momentum().to_mermaid() == (
        "flowchart LR\n"
        '  n0["feed<br/>price_feed"]\n'
        '  n1["fast<br/>moving_average"]\n'
        '  n2["end<br/>say &quot;hi&quot; &amp; &lt;go>"]\n'
        '  n3["cross<br/>crossover"]\n'
        '  n0 -->|"prices"| n1\n'
        '  n0 -->|"prices"| n3\n'
        '  n1 -->|"average to fast"| n3'
    )


def test_dot_escapes_labels() -> None:
    assert momentum().to_dot() == (
        "digraph flow {\n"
        "  rankdir=LR;\n"
        "  node [shape=box];\n"
        '  n0 [label="feed\\nprice_feed"];\n'
        '  n1 [label="fast\\nmoving_average"];\n'
        '  n2 [label="end\\nsay \\"hi\\" & <go>"];\n'
        '  n3 [label="cross\\ncrossover"];\n'
        '  n0 -> n1 [label="prices"];\n'
        '  n0 -> n3 [label="prices"];\n'
        '  n1 -> n3 [label="average to fast"];\n'
        "}"
    )


def test_faulty_flow_is_drawn_with_its_faults() -> None:
    flow = Flow("f")
    a, b = flow.node("a", "noop"), flow.node("b", "noop")
    a >> b["x"]
    b >> a["x"]
    weather = flow.to_weather()
    weather["nodes"].append({"id": "typeless"})
    weather["edges"] += [
        {"source": "a", "source_handle": "y", "target": "ghost", "target_handle": "z"},
        {"source": "typeless", "source_handle": "y", "target": "a", "target_handle": "z"},
        {"source": "spirit", "source_handle": "y", "target": "typeless", "target_handle": "z"},
        {},
    ]
    broken = Flow.from_weather("f", weather)
    assert broken.to_text() == (
        "typeless (?)\n"
        "└─ y → a.z\n"
        "a (noop)  on a closed path, never runs\n"
        "├─ output → b.x\n"
        "└─ y → ghost.z  no such node\n"
        "b (noop)  on a closed path, never runs\n"
        "└─ output → a.x\n"
        "spirit → typeless.z  no such node\n"
        "? → ?.?  no such node"
    )
    assert '["ghost<br/>?"]' in broken.to_mermaid()
    assert "spirit" in broken.to_dot()


def test_empty_flow_is_drawn_as_empty_text() -> None:
    assert Flow("f").to_text() == ""


def test_chain_of_ten_thousand_nodes_is_drawn_quickly() -> None:
    flow = Flow("f")
    node = flow.node("n0", "noop")
    for number in range(1, 10_000):
        node = node >> flow.node(f"n{number}", "noop")["x"]
    begun = time.process_time()
    lines = flow.to_text().splitlines()
    assert len(lines) == 19_999
    assert time.process_time() - begun < 5
    assert max(map(len, lines)) < 80


def test_fan_out_is_shown_in_every_drawing() -> None:
    flow = Flow("screening", "1h")
    feed = flow.node("feed", "feed")
    each = flow.node("each", "screen", map="share", max_parallel=4)
    feed["shares"] >> each["share"]
    assert "  each (screen)  for each of share, 4 at once" in flow.to_text().splitlines()
    assert '  n1["each<br/>screen<br/>for each of share, 4 at once"]' in flow.to_mermaid().splitlines()
    assert '  n1 [label="each\\nscreen\\nfor each of share, 4 at once"];' in flow.to_dot().splitlines()


def test_flow_that_a_node_runs_is_shown_in_every_drawing() -> None:
    flow = Flow("trading")
    flow.sub_flow("child", "prices")
    assert flow.to_text() == "child (flow)  runs flow prices"
    assert '  n0["child<br/>flow<br/>runs flow prices"]' in flow.to_mermaid().splitlines()
    assert '  n0 [label="child\\nflow\\nruns flow prices"];' in flow.to_dot().splitlines()
    for node in ({"id": "a", "type": "flow"}, {"id": "a", "type": "flow", "config": 5}):
        assert Flow.from_weather("f", {"nodes": [node]}).to_text() == "a (flow)"
    other = {"id": "a", "type": "other", "config": {"flow_id": "prices"}}
    assert Flow.from_weather("f", {"nodes": [other]}).to_text() == "a (other)"
