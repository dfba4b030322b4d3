"""`tradewind doctor`: what is wrong with the records of the services."""

from typing import Annotated

import typer

from tradewind.cli.parameters import Output
from tradewind.cli.screen import Format
from tradewind.cli.session import Session, asynchronous


@asynchronous
async def doctor(
    session: Session,
    mend: Annotated[bool, typer.Option("--mend", help="Put right what can be.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Check all services for broken invariants.

    Exits with 1 when one is found and not mended.
    """
    async with session.client() as client:
        diagnosis = await client.run_doctor(mend=mend)
    screen = session.screen
    if output is Format.JSON:
        screen.json(diagnosis)
    else:
        rows = [
            (each.service, each.check, each.subject, each.problem, "yes" if each.mended else "no")
            for each in diagnosis.findings
        ]
        if rows:
            screen.table(["SERVICE", "CHECK", "SUBJECT", "PROBLEM", "MENDED"], rows)
        screen.line(f"{len(rows)} broken invariants among {diagnosis.examined} records and entries of indexes")
        if rows and not mend:
            screen.line("tradewind doctor --mend puts right what can be; docs/doctor.md says what each check means")
        if mend and not diagnosis.healthy:
            screen.line("what was not mended needs you: docs/doctor.md says what to do about each check")
        before = ", ".join(f"{check} {count}" for check, count in sorted(diagnosis.found_before.items()))
        if before:
            screen.line(f"found in the background before: {before}")
    if not diagnosis.healthy:
        raise typer.Exit(1)
