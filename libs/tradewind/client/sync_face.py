"""The synchronous face of an asynchronous object: the same methods, which wait."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_args

from tradewind.client.background_loop import BackgroundLoop

Inner = TypeVar("Inner", covariant=True)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Face = TypeVar("Face")
Made = TypeVar("Made", bound=Callable[..., Any])


class SyncFace(Generic[Inner]):
    """The synchronous face of an asynchronous object."""

    def __init__(self, inner: Inner, loop: BackgroundLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __repr__(self) -> str:
        return f"Sync{self._inner!r}"


def waits(
    method: Callable[Concatenate[Inner, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[SyncFace[Inner], Arguments], Result]:
    """Return a method that waits for the result of `method`, with its parameters and documentation."""

    @wraps(method)
    def waiting(self: SyncFace[Inner], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self._loop.wait(method(self._inner, *args, **kwargs))

    return waiting


def waits_for(
    method: Callable[Concatenate[Inner, Arguments], Coroutine[Any, Any, Result]],
    face: Callable[[Result, BackgroundLoop], Face],
) -> Callable[Concatenate[SyncFace[Inner], Arguments], Face]:
    """Return a method that waits for the handle that `method` returns, and returns its synchronous face."""

    @wraps(method)
    def waiting(self: SyncFace[Inner], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Face:
        return face(self._loop.wait(method(self._inner, *args, **kwargs)), self._loop)

    return _returning(face, waiting, method)


def faces(
    method: Callable[Concatenate[Inner, Arguments], Result], face: Callable[[Result, BackgroundLoop], Face]
) -> Callable[Concatenate[SyncFace[Inner], Arguments], Face]:
    """Return a method that returns the synchronous face of the handle that `method` returns at once."""

    @wraps(method)
    def wrapped(self: SyncFace[Inner], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Face:
        return face(method(self._inner, *args, **kwargs), self._loop)

    return _returning(face, wrapped, method)


def iterates(
    method: Callable[Concatenate[Inner, Arguments], AsyncIterator[Result]],
) -> Callable[Concatenate[SyncFace[Inner], Arguments], Iterator[Result]]:
    """Return a method that yields what `method` yields, with its parameters and documentation."""

    @wraps(method)
    def iterating(self: SyncFace[Inner], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Iterator[Result]:
        return self._loop.iterate(method(self._inner, *args, **kwargs))

    (item, *_) = get_args(signature(method).return_annotation)
    return _returning(Iterator[item], iterating, method)  # type: ignore[valid-type]


def _returning(kind: object, face: Made, method: Callable[..., Any]) -> Made:
    """Give `face` the signature of `method` but for what it returns, as notebooks show it."""
    face.__signature__ = signature(method).replace(return_annotation=kind)  # type: ignore[attr-defined]
    return face
