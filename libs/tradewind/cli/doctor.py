"""`tradewind doctor`: what is wrong with the records of the services."""

from typing import Annotated

import typer

from tradewind.cli.failures import FAILED
from tradewind.cli.parameters import Output
from tradewind.cli.screen import Format, counted
from tradewind.cli.session import Session, asynchronous


@asynchronous
async def doctor(
    session: Session,
    mend: Annotated[bool, typer.Option("--mend", help="Repair what can be repaired.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Check all services for broken invariants.

    Exits with 1 unless all that are found are mended.
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
        screen.line(f"{counted(len(rows), 'broken invariant')} in {diagnosis.examined} records and index entries")
        if rows and not mend:
            screen.line("tradewind doctor --mend repairs what it can; docs/doctor.md explains each check")
        if mend and not diagnosis.healthy:
            screen.line("what was not mended needs manual repair: docs/doctor.md says how, for each check")
        before = ", ".join(f"{check} {count}" for check, count in sorted(diagnosis.found_before.items()))
        if before:
            screen.line(f"found earlier, in the background: {before}")
    if not diagnosis.healthy:
        raise typer.Exit(FAILED)
