"""Reads metrics endpoints."""

import asyncio
import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """All samples of one scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        self.kinds: dict[str, str] = {}
        self.samples: list[tuple[str, Mapping[str, str], float]] = []
        for family in text_string_to_metric_families(text):
            self.kinds[family.name] = family.type
            self.samples += [(sample.name, sample.labels, sample.value) for sample in family.samples]

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a name that have these labels."""
        return sum(value for each, has, value in self.samples if each == name and labels.items() <= has.items())

    def names(self) -> set[str]:
        """Return the names of all metrics of Tradewind, as they are declared."""
        names = {f"{name}_total" if kind == "counter" else name for name, kind in self.kinds.items()}
        return {name for name in names if name.startswith("tradewind_")}

    def labels(self, name: str) -> set[str]:
        """Return every label of samples whose names begin like this."""
        return {label for each, labels, _ in self.samples if each.startswith(name) for label in labels}


async def scrape(port: int) -> Scraped:
    """Scrape the endpoint of this machine at `port`."""

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            text: str = response.read().decode()
            return text

    return Scraped(await asyncio.to_thread(read))
