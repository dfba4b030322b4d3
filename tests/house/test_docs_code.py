"""Code in documents: Python names what exists, flows are sound."""

import ast
import inspect
import json
import re
from importlib import import_module
from typing import Any

import pytest
import yaml

from tests.house.pages import DOCUMENTS, blocks
from tradewind.client import Client
from tradewind.scheduler.domain.flow_analysis import analyze
from tradewind.scheduler.domain.weather import read_weather_json


def missing(tree: ast.AST) -> list[str]:
    """Return what the code imports from `tradewind`, or asks of a client, and is not there."""
    wrong = []
    for found in ast.walk(tree):
        match found:
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "tradewind":
                there = import_module(module)
                wrong += [f"{module}.{each.name}" for each in names if not hasattr(there, each.name)]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="client"), attr=name), keywords=keywords):
                method = getattr(Client, name, None)
                taken = inspect.signature(method).parameters if method else {}
                wrong += [f"client.{name}({each.arg}=)" for each in keywords if each.arg not in taken]
                wrong += [] if method else [f"client.{name}"]
    return wrong


@pytest.mark.parametrize("document", [name for name, text in DOCUMENTS.items() if "```python" in text])
def test_python_names_what_exists(document: str) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    trees = [compile(code, document, "exec", flags) for code in blocks(DOCUMENTS[document], "python")]

    assert [name for tree in trees for name in missing(tree)] == []


def test_methods_of_the_client_in_sentences_exist() -> None:
    named = {
        (document, name)
        for document, text in DOCUMENTS.items()
        for name in re.findall(r"`(?:\(?await )?[Cc]lient\.(\w+)", text)
    }

    assert len(named) > 30
    assert sorted(each for each in named if not hasattr(Client, each[1])) == []


def flows(text: str) -> list[dict[str, Any]]:
    """Return the flows of a document; a node alone is one."""
    read = [json.loads(line) for block in blocks(text, "json") for line in pieces(block)]
    read += [yaml.safe_load(block) for block in blocks(text, "yaml")]
    alone = [{"interval": 1, "nodes": [each], "edges": []} for each in read if {"id", "type"} <= each.keys()]
    return alone + [each for each in read if "nodes" in each]


def pieces(block: str) -> list[str]:
    """Return a block as it is, or its lines where each of them is an object."""
    lines = block.splitlines()
    return lines if all(line.startswith("{") and line.endswith("}") for line in lines) else [block]


@pytest.mark.parametrize("document", [name for name, text in DOCUMENTS.items() if re.search("```(json|yaml)", text)])
def test_flows_are_sound(document: str) -> None:
    texts = [json.dumps(flow) for flow in flows(DOCUMENTS[document])]
    faults = [fault for text in texts for fault in analyze(read_weather_json(text), None).violations]

    assert faults == []
