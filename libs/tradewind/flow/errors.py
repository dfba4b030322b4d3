"""What can be wrong with a flow before any server has seen it.

ValueError
+-- FlowError            what was built is not a flow
    +-- FlowFileError    the content of a file is not a flow; says where in the file
"""

from typing import Any


class FlowError(ValueError):
    """Something that cannot be part of a flow; `path` says where, as in `nodes[3].config`; "" means the whole."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path


class FlowFileError(FlowError):
    """A file that does not hold a flow; `line` and `column` count from 1, and are 0 when not known."""

    def __init__(self, file: str, message: str, *, line: int = 0, column: int = 0, path: str = "") -> None:
        super().__init__(message, path)
        self.file = file
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception's own calls the class with the text alone.
        return type(self).__new__, (type(self), *self.args), self.__dict__

    def __str__(self) -> str:
        place = ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])
        return f"{place}: {super().__str__()}"
