"""Reads the fields of one JSON object, each by its rule, and notes what is missing, wrong or unknown."""

from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.intervals import LONGEST_MS, parse_duration
from tradewind.scheduler.domain.paths import join, shown
from tradewind.server.identifiers import check_identifier
from tradewind.server.nearest_name import NearestName
from tradewind.server.quoting import listed, quoted


class Fields:
    """The fields of the object at `path`; a field that is null counts as absent.

    Each reader returns the field's value, or its default when it is absent. When the value is at fault, the reader
    notes the fault and returns the default (None where there is none).
    """

    def __init__(self, value: Mapping[str, Any], path: str, faults: FaultList) -> None:
        self._value = value
        self.path = path
        self.faults = faults
        self._faults_before = len(faults)

    @property
    def faulty(self) -> bool:
        """Whether any fault has been noted since the reading of these fields began."""
        return len(self.faults) > self._faults_before

    def get(self, name: str) -> Any:
        """Return a field as it is, None when it is absent."""
        return self._value.get(name)

    def fault(self, name: str, message: str) -> None:
        """Note a fault of a field."""
        self.faults.add(join(self.path, name), message)

    def refuse_unknown(self, known: Sequence[str], reported: Sequence[str] = ()) -> None:
        """Note a fault for every field that is not in `known`, except those already reported, in `reported`."""
        for name in self._value:
            if name in known or name in reported:
                continue
            if not self.faults.full:
                self.fault(name, f"unknown field{NearestName(known).hint(name, f'; use one of {listed(list(known))}')}")
            else:
                self.fault(name, "unknown field")

    def required(self, name: str, message: str = "is required") -> Any:
        """Return the field as it is, None with a fault when it is absent."""
        value = self._value.get(name)
        if value is None:
            self.fault(name, message)
        return value

    def identifier(self, name: str) -> str | None:
        """Return a required identifier; illegal text is noted as a fault, but returned."""
        value = self.required(name)
        if value is None:
            return None
        if not isinstance(value, str):
            self.fault(name, f"must be text, is {shown(value)}")
            return None
        fault = check_identifier(join(self.path, name), value)
        if fault is not None:
            self.faults.add(fault.path, fault.message)
        return value or None

    def reference(self, name: str) -> str | None:
        """Return a required text that names something; whether it exists is for the caller to check."""
        value = self.required(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            self.fault(name, f"must be text, is {shown(value)}" if value != "" else "must not be empty")
            return None
        return value

    def duration(self, name: str, default_ms: int, *, least_ms: int = 0, max_ms: int = LONGEST_MS) -> int:
        """Return a duration in milliseconds, from `least_ms` to `max_ms`."""
        value = self._value.get(name)
        if value is None:
            return default_ms
        try:
            milliseconds = parse_duration(value)
        except ValueError as error:
            self.fault(name, str(error))
            return default_ms
        if milliseconds < least_ms:
            self.fault(name, f"must be at least {least_ms}ms, is {shown(value)}")
            return default_ms
        if milliseconds > max_ms:
            days, rest = divmod(max_ms, 86_400_000)
            most = f"{max_ms / 1000:g}s" if rest else f"{days}d"
            self.fault(name, f"must be at most {most}, is {shown(value)}")
            return default_ms
        return milliseconds

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Return one of `choices`."""
        value = self._value.get(name)
        if value is None:
            return default
        if isinstance(value, str) and value in choices:
            return value
        allowed = f"use one of {listed(list(choices))}"
        if isinstance(value, str):
            self.fault(name, f"unknown value {quoted(value)}{NearestName(choices).hint(value, f'; {allowed}')}")
        else:
            self.fault(name, f"must be text, is {shown(value)}; {allowed}")
        return default

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """Return a whole number from `least` to `most`."""
        value = self._value.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.fault(name, f"must be a whole number from {least} to {most}, is {shown(value)}")
            return default
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """Return a number from `least` to `most`."""
        value = self._value.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            self.fault(name, f"must be a number from {least} to {most}, is {shown(value)}")
            return default
        return float(value)

    def texts(self, name: str, most: int, longest: int) -> tuple[str, ...]:
        """Return a list of at most `most` texts of 1 to `longest` characters each, () when it is absent."""
        value = self._value.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fault(name, f"must be a list of texts, is {shown(value)}")
            return ()
        if len(value) > most:
            self.fault(name, f"must hold at most {most}, holds {len(value)}")
            return ()
        found = []
        for index, item in enumerate(value):
            if isinstance(item, str) and 0 < len(item) <= longest:
                found.append(item)
            else:
                path = join(join(self.path, name), index)
                self.faults.add(path, f"must be text of 1 to {longest} characters, is {shown(item)}")
        return tuple(found)

    def text(self, name: str, longest: int) -> str:
        """Return text of at most `longest` characters, "" when it is absent."""
        value = self._value.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.fault(name, f"must be text, is {shown(value)}")
            return ""
        if len(value) > longest:
            self.fault(name, f"must have at most {longest} characters, has {len(value)}")
            return ""
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """Return an object, {} when it is absent."""
        value = self._value.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fault(name, f"must be an object, is {shown(value)}")
            return {}
        return value

    def nested(self, name: str) -> "Fields | None":
        """Return the fields of an object, None when it is absent or at fault."""
        value = self._value.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fault(name, f"must be an object, is {shown(value)}")
            return None
        return Fields(value, join(self.path, name), self.faults)

    def objects(self, name: str) -> list[tuple[int, dict[str, Any]]]:
        """Return the objects of a list with their indexes, [] when it is absent."""
        value = self._value.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.fault(name, f"must be a list, is {shown(value)}")
            return []
        found = []
        for index, item in enumerate(value):
            if isinstance(item, dict):
                found.append((index, item))
            else:
                self.faults.add(join(join(self.path, name), index), f"must be an object, is {shown(item)}")
        return found
