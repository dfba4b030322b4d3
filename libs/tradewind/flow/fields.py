"""Reads the fields of a definition into the typed messages, and turns enum values back into words."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tradewind.flow.errors import FlowError
from tradewind.flow.values import checked_text, json_copy, kind_of
from tradewind.server.nearest_name import NearestName


def add_enum_word(weather: dict[str, Any], name: str, number: int, words: Mapping[str, Any], path: str) -> None:
    """Put the word for an enum value into the definition; 0 is the default and needs none."""
    if not number:
        return
    for word, value in words.items():
        if value == number:
            weather[name] = word
            return
    raise FlowError(f"{number} is not a known value; use one of {', '.join(words)}", path + name)


class Fields:
    """The fields of one object, each read as the type that the message has for it; absent fields are empty."""

    def __init__(self, values: object, path: str, known: tuple[str, ...]) -> None:
        if not isinstance(values, Mapping):
            raise FlowError(f"must be an object, is {kind_of(values)}", path)
        self._values = values
        self._path = path
        for name in values:
            if name not in known:
                hint = NearestName(known).hint(str(name), f"; known fields are {', '.join(known)}")
                raise FlowError(f"unknown field{hint}", self.at(str(name)))

    def at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def text(self, name: str) -> str:
        value = self._values.get(name, "")
        if not isinstance(value, str):
            raise FlowError(f"must be text, is {kind_of(value)}", self.at(name))
        return checked_text(value, self.at(name))

    def duration(self, name: str) -> str:
        value = self._values.get(name, "")
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise FlowError(f"must be a number of seconds or text, is {kind_of(value)}", self.at(name))
        # A float's own notation may have an exponent, which durations do not allow.
        return checked_text(value, self.at(name)) if isinstance(value, str) else format(Decimal(repr(value)), "f")

    def integer(self, name: str) -> int:
        value = self._values.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int):
            raise FlowError(f"must be a whole number, is {kind_of(value)}", self.at(name))
        return self._int32(value, name)

    def object(self, name: str) -> Mapping[str, Any]:
        value = self._values.get(name, {})
        if not isinstance(value, Mapping):
            raise FlowError(f"must be an object, is {kind_of(value)}", self.at(name))
        return value

    def number(self, name: str) -> float | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FlowError(f"must be a number, is {kind_of(value)}", self.at(name))
        try:
            return float(value)
        except OverflowError:
            raise FlowError("is too large", self.at(name)) from None

    def share_or_count(self, name: str) -> float | int | None:
        """Return a whole number, however it is written, as an int, any other one as a float."""
        value = self.number(name)
        return self._int32(int(value), name) if value is not None and value.is_integer() else value

    def texts(self, name: str) -> list[str]:
        value = self._values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise FlowError("must be a list of texts", self.at(name))
        return [checked_text(each, f"{self.at(name)}[{place}]") for place, each in enumerate(value)]

    def word(self, name: str, words: Mapping[str, Any]) -> Any:
        value = self.text(name)
        if value and value not in words:
            raise FlowError(f'"{value}" is not one of {", ".join(words)}', self.at(name))
        return words.get(value)

    def json(self, name: str) -> str:
        if name not in self._values:
            return ""
        return json.dumps(json_copy(self._values[name], self.at(name)), ensure_ascii=False, separators=(",", ":"))

    def labels(self) -> dict[str, str]:
        value = self._values.get("labels", {})
        if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
            raise FlowError("must be an object of texts", self.at("labels"))
        copy: dict[str, str] = json_copy(value, self.at("labels"))
        return copy

    def items(self, name: str) -> list[tuple[str, Any]]:
        value = self._values.get(name, [])
        if not isinstance(value, list):
            raise FlowError(f"must be a list, is {kind_of(value)}", self.at(name))
        return [(f"{self.at(name)}[{place}]", item) for place, item in enumerate(value)]

    def _int32(self, value: int, name: str) -> int:
        if not -(2**31) <= value < 2**31:
            raise FlowError(f"must be from {-(2**31)} to {2**31 - 1}", self.at(name))
        return value
