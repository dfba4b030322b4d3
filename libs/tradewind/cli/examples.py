"""A line to copy for commands that operators use or that have much to say, shown at the end of the command's help."""

import typer

EXAMPLES = {
    "init": "init hello",
    "up": "up --port 7800 --data /var/lib/tradewind",
    "worker run": "worker run my.module",
    "flow register": "flow register momentum momentum.json",
    "flow plan": "flow plan momentum.json",
    "flow run": "flow run momentum --input month=2001-04 --wait",
    "flow update": "flow update momentum interval=30s overlap=queue_one --note 'twice as often'",
    "flow memory": "flow memory trades --set cursor=0",
    "flow logs": "flow logs momentum --level warning --follow",
    "cycle show": "cycle show momentum",
    "cycle approve": "cycle approve release 0 ask --value size=100",
    "task submit": "task submit screen_share --param share=IBM --param until=2005-06 --wait",
    "task signal": "task signal shop:0:0:pay --signal paid --payload-json '{\"euros\": 5}'",
    "batch submit": "batch submit screen_share items.jsonl --watch",
    "trigger save": "trigger save nightly -q reports --cron '30 2 * * *'",
    "event publish": "event publish price --field symbol=AAPL --id quote-7",
    "notification send": "notification send 'maintenance at noon' --severity warning --user ann",
    "login": "login --token-file .tradewind/admin.token",
    "logout": "logout",
    "whoami": "whoami",
    "token create": "token create --user ann --role user --label laptop --lifetime 30d",
    "token list": "token list --user ann",
    "token revoke": "token revoke --all --user ann",
    "user set": "user set ann --role operator --time-zone Europe/Berlin",
    "user quotas": "user quotas ann",
    "user list": "user list -o json",
    "doctor": "doctor --mend",
    "explain": "explain prices gate",
    "queue": "queue --user ann",
    "worker list": "worker list",
    "worker drain": "worker drain worker-1",
    "cycle stop": "cycle stop prices --node gate --reason stuck",
    "cycle rerun": "cycle rerun report --reason mended",
    "flow pause": "flow pause report --note 'until the feed is back'",
    "flow resume": "flow resume report",
    "flow stop": "flow stop report --reason retired",
    "flow backfill": "flow backfill report --from 2026-03-01 --to 2026-03-02 --max-running 2 --wait",
    "flow backfills": "flow backfills report",
    "flow cancel-backfill": "flow cancel-backfill report 1 --reason 'wrong range'",
    "job rerun": "job rerun 'eu.*' --started-after 2026-03-01 --dry-run",
    "job stop": "job stop 'eu.*' --reason 'the feed is down' --wait",
    "job show": "job show job-0a1b",
    "job cancel": "job cancel job-0a1b",
    "job list": "job list --limit 5",
    "dead-letter list": "dead-letter list",
    "dead-letter redrive": "dead-letter redrive task:0a1b",
    "batch show": "batch show 8be0f2",
    "batch cancel": "batch cancel 8be0f2 --reason 'wrong file'",
    "batch delete": "batch delete 8be0f2",
    "config get": "config get",
    "config set": "config set max_running=200",
    "cache stats": "cache stats",
    "cache clear": "cache clear screening",
    "backup create": "backup create /backups --data .tradewind --keep 14",
    "backup list": "backup list /backups",
    "backup verify": "backup verify /backups",
    "backup restore": "backup restore /backups /var/lib/tradewind --replace",
}
"""The example of each command, without the leading `tradewind`."""


def add_examples(app: typer.Typer, words: tuple[str, ...] = ()) -> None:
    """Put the examples at the end of the help of the commands below `app`."""
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        example = EXAMPLES.get(" ".join((*words, name)))
        if example is not None:
            command.epilog = f"Example: tradewind {example}"
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_examples(group.typer_instance, (*words, group.name) if group.name else words)
