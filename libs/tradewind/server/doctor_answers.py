"""A doctor's findings as answers to RunDoctor."""

from collections.abc import AsyncIterator
from typing import Protocol, TypeVar

from tradewind.api.doctor.v1.finding_pb2 import Finding as FindingMessage
from tradewind.server.doctor import Doctor

Answer = TypeVar("Answer", covariant=True)


class AnswerType(Protocol[Answer]):
    """The RunDoctorResponse of a service."""

    def __call__(self, *, findings: list[FindingMessage], examined: int, found_before: dict[str, int]) -> Answer:
        """Return a response with these fields."""
        ...


async def doctor_answers(doctor: Doctor, mend: bool, answer: AnswerType[Answer]) -> AsyncIterator[Answer]:
    """Run the doctor; yield an answer for each step that found something, and a last one without findings."""
    async for step in doctor.run(mend=mend):
        findings = [
            FindingMessage(check=each.check, subject=each.subject, problem=each.problem, mended=each.mended)
            for each in step.findings
        ]
        yield answer(findings=findings, examined=step.records, found_before=dict(doctor.found))
