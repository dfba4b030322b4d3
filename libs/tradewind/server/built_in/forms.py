"""Forms: what a person is asked, and whether an answer fits."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.server.built_in.node_type import Fault, unknown_faults
from tradewind.server.identifiers import is_identifier

TYPES = ("text", "number", "integer", "boolean")
MAX_FIELDS = 50
_MAX_TITLE_CHARACTERS, _MAX_TEXT_CHARACTERS = 200, 8192
_MAX_CHOICES = 100
_MAX_NUMBER = sys.float_info.max
_FORM_KEYS = ("title", "description", "fields")
_FIELD_KEYS = ("name", "type", "title", "required", "choices")


def form_faults(form: object) -> list[Fault]:
    """Return everything wrong with a form: {title, description, fields [{name, type, title, required, choices}]}."""
    if not isinstance(form, Mapping):
        return [((), "must be an object with a title and, if there are any, the fields to fill in")]
    found = unknown_faults(form, _FORM_KEYS)
    title = form.get("title")
    if not isinstance(title, str) or not 1 <= len(title) <= _MAX_TITLE_CHARACTERS or "\n" in title:
        found.append((("title",), f"must be one line of 1 to {_MAX_TITLE_CHARACTERS} characters"))
    description = form.get("description", "")
    if not isinstance(description, str) or len(description) > _MAX_TEXT_CHARACTERS:
        found.append((("description",), f"must be text of at most {_MAX_TEXT_CHARACTERS} characters"))
    fields = form.get("fields", [])
    if not isinstance(fields, list) or len(fields) > MAX_FIELDS:
        return [*found, (("fields",), f"must be a list of at most {MAX_FIELDS} fields")]
    names: set[str] = set()
    for at, each in enumerate(fields):
        found += [(("fields", at, *keys), message) for keys, message in _field_faults(each, names)]
    return found


def _field_faults(each: object, names: set[str]) -> list[Fault]:
    if not isinstance(each, Mapping):
        return [((), "must be an object with name and type")]
    found = unknown_faults(each, _FIELD_KEYS)
    name, kind = each.get("name"), each.get("type")
    if not isinstance(name, str) or not is_identifier(name):
        found.append((("name",), "must be an identifier"))
    elif name in names:
        found.append((("name",), f'"{name}" is already the name of another field'))
    else:
        names.add(name)
    if kind not in TYPES:
        return [*found, (("type",), f"must be one of {', '.join(TYPES)}, is {kind!r}")]
    if not isinstance(each.get("title", ""), str) or len(each.get("title", "")) > _MAX_TITLE_CHARACTERS:
        found.append((("title",), f"must be text of at most {_MAX_TITLE_CHARACTERS} characters"))
    if not isinstance(each.get("required", False), bool):
        found.append((("required",), "must be true or false"))
    choices = each.get("choices", [])
    if not isinstance(choices, list) or len(choices) > _MAX_CHOICES:
        return [*found, (("choices",), f"must be a list of at most {_MAX_CHOICES} values")]
    return [*found, *((("choices",), f"each {fault}") for choice in choices if (fault := _type_fault(kind, choice)))]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a form."""

    approved: bool = True
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self, *, by: str) -> str:
        """Return the answer as it is emitted, and as a node reads it, with who gave it."""
        return json.dumps({"approved": self.approved, "values": dict(self.values), "by": by}, ensure_ascii=False)


def read_answer(form: Mapping[str, Any], payload: object) -> tuple[Answer, list[Fault]]:
    """Return an answer to a form without faults, and everything in which the answer does not fit.

    A rejection does not require values, but those given are checked.
    """
    answer = {} if payload is None else payload
    if not isinstance(answer, Mapping):
        return Answer(), [((), 'must be an object such as {"approved": true, "values": {}}')]
    found = unknown_faults(answer, ("approved", "values"))
    approved, values = answer.get("approved", True), answer.get("values", {})
    if not isinstance(approved, bool):
        found.append((("approved",), "must be true or false"))
    if not isinstance(values, Mapping):
        return Answer(), [*found, (("values",), "must be an object of values by field name")]
    fields = {each["name"]: each for each in form.get("fields", [])}
    for name, value in values.items():
        field_of_form = fields.get(name)
        if field_of_form is None:
            field_names = f"it has {', '.join(fields)}" if fields else "it has none"
            found.append((("values", name), f"is not a field of the form; {field_names}"))
        elif fault := _value_fault(field_of_form, value):
            found.append((("values", name), fault))
    for name, each in fields.items():
        if each.get("required") and approved and values.get(name) is None:
            found.append((("values", name), "is required"))
    return Answer(approved is True, dict(values)), found


def _value_fault(field_of_form: Mapping[str, Any], value: object) -> str:
    if value is None and not field_of_form.get("required"):
        return ""
    choices = field_of_form.get("choices")
    fault = _type_fault(field_of_form["type"], value)
    if not fault and choices and value not in choices:
        return f"must be one of {', '.join(json.dumps(choice) for choice in choices)}, is {json.dumps(value)}"
    return fault


def _type_fault(kind: object, value: object) -> str:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    # math.isfinite raises for integers beyond what floats hold.
    within = number is not None and abs(number) <= _MAX_NUMBER
    fits = {
        "text": isinstance(value, str) and len(value) <= _MAX_TEXT_CHARACTERS,
        "number": within,
        "integer": within and isinstance(value, int),
        "boolean": isinstance(value, bool),
    }
    if fits[str(kind)]:
        return ""
    bounds = (
        f" within ±{_MAX_NUMBER:.1e}" if number is not None and not within and kind in ("number", "integer") else ""
    )
    return f"must be of type {kind}{bounds}, is {json.dumps(value, default=str)[:100]}"
