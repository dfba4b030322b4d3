"""Stands in for numpy."""


class Array:
    """Yields plain numbers on request, as numpy's arrays and scalars do."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def tolist(self) -> list[float]:
        return self.values
