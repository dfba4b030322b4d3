"""A scheduler's stream of submissions: one request after another, each answered before the next is read."""

from collections.abc import Awaitable, Callable

import grpc

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.server.errors import ErrorAnswers
from tradewind.server.interception import Context
from tradewind.server.streams import OpenStreams

_METHOD = "/tradewind.api.node_task_manager.v1.NodeTaskManagerService/StreamSubmissions"

Submit = Callable[[pb2.SubmitComponentsRequest, pb2.SubmitComponentsResponse], Awaitable[None]]


class SubmissionStream:
    """Serves one StreamSubmissions call; `submit(request, response)` fills in the answer to a request, or raises."""

    def __init__(self, submit: Submit, errors: ErrorAnswers, streams: OpenStreams) -> None:
        self._submit = submit
        self._errors = errors
        self._streams = streams

    async def serve(self, context: Context) -> None:
        """Answer until the caller has sent its last request.

        Raises Unavailable when the server is leaving, but only after answering requests that have come: the first of a
        stream is answered even then, as a call would be.
        """
        with self._streams.opened(late=True):
            message = await context.read()
        while message is not grpc.aio.EOF:
            await context.write(await self._answer(message))
            # It counts as a stream that a leaving server ends only while it waits for a request.
            with self._streams.opened():
                message = await context.read()

    async def _answer(self, message: pb2.StreamSubmissionsRequest) -> pb2.StreamSubmissionsResponse:
        answer = pb2.StreamSubmissionsResponse(number=message.number)
        answer.response.SetInParent()
        try:
            # In place, since nesting a finished message would copy it.
            await self._submit(message.request, answer.response)
        except Exception as error:
            status = self._errors.status_of(error, _METHOD)
            return pb2.StreamSubmissionsResponse(number=message.number, error_status=status.SerializeToString())
        return answer
