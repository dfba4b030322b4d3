"""Secrets are resolved in the worker, and never leave it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.worker.attempts import Bench
from tradewind.codec import AesGcm
from tradewind.testing import run_node
from tradewind.worker import Context, Wait, node
from tradewind.worker.errors import NodeFault
from tradewind.worker.secrets import Redactor, SecretResolver, environment_name, refuse_secrets

VALUE = 's3cr"t\n/ü'


@node("login")
async def login(ctx: Context, key: str, more: Any = None, fail: str = "") -> list[Any]:
    ctx.log.info("using %s", key)
    await ctx.progress(10, f"with {key}")
    if fail == "repr":
        raise PermissionError({"key": key})
    if fail == "plain":
        raise PermissionError(f"{key} is refused for {json.dumps(key)}")
    return [key == VALUE, more]


def reference(name: str) -> dict[str, str]:
    return {"$secret": name}


async def test_references_are_resolved_anywhere_in_config() -> None:
    run = await run_node(
        login,
        config={"key": reference("broker"), "more": {"list": [reference("second"), 1]}},
        secrets={"broker": VALUE, "second": "two"},
    )

    assert run.output == [True, {"list": ["two", 1]}]


async def test_environment_is_default_source_of_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_SECRET_BROKER_API_KEY", VALUE)

    async with Bench([login]) as bench:
        run = await bench.run(bench.assignment("login", config_json='{"key": {"$secret": "broker.api-key"}}'))

    assert run.output == [True, None]


async def test_async_hook_may_return_none_for_unknown_secret() -> None:
    async def vault(name: str) -> str | None:
        return {"broker": VALUE}.get(name)

    async with Bench([login], secrets=vault) as bench:
        known = await bench.run(bench.assignment("login", config_json='{"key": {"$secret": "broker"}}'))
        unknown = await bench.run(bench.assignment("login", "t2", config_json='{"key": {"$secret": "other"}}'))

    assert known.output == [True, None]
    assert unknown.error is not None
    assert (unknown.error.code, unknown.error.message) == (
        "SECRET_MISSING",
        "the worker's secrets hook has no value for other",
    )


async def test_all_missing_secrets_are_named_with_variables_to_set() -> None:
    async with Bench([login]) as bench:
        config = json.dumps({"key": reference("no-such"), "more": reference("nor.this")})
        run = await bench.run(bench.assignment("login", config_json=config))

    assert run.error is not None
    assert run.error.code == "SECRET_MISSING"
    assert run.error.message == (
        "this worker has no value for no-such (set TRADEWIND_SECRET_NO_SUCH), nor.this (set TRADEWIND_SECRET_NOR_THIS)"
    )


async def test_failing_hook_reveals_only_type_of_exception() -> None:
    def vault(name: str) -> str:
        raise ConnectionError(f"token {VALUE} is refused")

    async with Bench([login], secrets=vault) as bench:
        run = await bench.run(bench.assignment("login", config_json='{"key": {"$secret": "broker"}}'))

    assert run.error is not None
    assert (run.error.message, run.error.type) == ("the worker's secrets hook failed for broker", "ConnectionError")


async def test_hook_must_return_text_or_none() -> None:
    def vault(name: str) -> Any:
        return 5

    async with Bench([login], secrets=vault) as bench:
        run = await bench.run(bench.assignment("login", config_json='{"key": {"$secret": "broker"}}'))

    assert run.error is not None
    assert run.error.message == "the worker's secrets hook must return text for broker, or None"


@pytest.mark.parametrize("bad", [{"$secret": 5}, {"$secret": "a", "other": 1}])
async def test_malformed_reference_names_its_path(bad: dict[str, Any]) -> None:
    run = await run_node(login, config={"key": "x", "more": [bad]})

    assert run.error is not None
    assert run.error.message == 'config.more[0]: a reference to a secret must be exactly {"$secret": "name"}'


@pytest.mark.parametrize("fail", ["plain", "repr"])
async def test_secrets_are_redacted_in_logs_progress_and_errors(fail: str) -> None:
    run = await run_node(login, config={"key": reference("broker"), "fail": fail}, secrets={"broker": VALUE})

    assert run.error is not None
    assert "[secret broker]" in run.error.message
    assert "[secret broker]" in run.error.traceback
    assert [line.message for line in run.logs] == ["using [secret broker]"]
    assert run.progress == [(10, "with [secret broker]")]
    assert "s3cr" not in repr(run)


async def test_secret_of_several_lines_is_redacted_in_the_traceback_of_an_exception_group() -> None:
    @node("signs")
    async def signs(key: str) -> None:
        raise ExceptionGroup("of tasks", [ExceptionGroup("of others", [ValueError(f"no key: {key}")])])

    key = "-----BEGIN KEY-----\nMIIEvQIB\n  ADANBg\n-----END KEY-----\n"
    run = await run_node(signs, config={"key": reference("broker")}, secrets={"broker": key})

    assert run.error is not None
    assert "ValueError: no key: [secret broker]" in run.error.traceback
    assert not any(line in repr(run) for line in ("MIIEvQIB", "ADANBg"))


async def test_secret_of_wrong_type_is_not_shown() -> None:
    @node("side")
    async def side(shares: int) -> None: ...

    run = await run_node(side, config={"shares": reference("broker")}, secrets={"broker": "s3cr"})

    assert run.error is not None
    assert run.error.message == "config.shares: expected int, got str"


async def test_changed_secret_is_used_by_next_call() -> None:
    values = {"broker": "old"}

    async def vault(name: str) -> str:
        return values[name]

    @node("tell")
    async def tell(key: str) -> str:
        return key.upper()

    async with Bench([tell], secrets=vault) as bench:
        first = await bench.run(bench.assignment("tell", config_json='{"key": {"$secret": "broker"}}'))
        values["broker"] = "new"
        second = await bench.run(bench.assignment("tell", "t2", config_json='{"key": {"$secret": "broker"}}'))

    assert [first.output, second.output] == ["OLD", "NEW"]


def test_longer_of_overlapping_secrets_is_redacted_whole() -> None:
    redact = Redactor({"short": "abc", "long": "abcdef", "empty": ""})

    assert redact("abcdef abc a%20b") == "[secret long] [secret short] a%20b"
    assert Redactor({"url": "a b/c"})("?key=a%20b%2Fc&key=a+b%2Fc") == "?key=[secret url]&key=[secret url]"
    assert Redactor({"empty": ""})("text") == "text"


@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_secret_is_redacted_in_any_json(ensure_ascii: bool) -> None:
    assert Redactor({"broker": VALUE})(json.dumps([VALUE], ensure_ascii=ensure_ascii)) == '["[secret broker]"]'


def test_environment_variable_is_named_after_secret() -> None:
    assert environment_name("broker.api-key_2") == "TRADEWIND_SECRET_BROKER_API_KEY_2"


async def test_secrets_are_read_from_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_SECRETS_DIR", str(tmp_path))
    (tmp_path / "broker.key").write_text("one\n", encoding="utf-8")
    source = SecretResolver()
    config = {"key": reference("broker.key")}

    assert (await source.resolve(config))[0] == {"key": "one"}
    (tmp_path / "broker.key").write_text("two\r\n", encoding="utf-8")
    assert (await source.resolve(config))[0] == {"key": "two"}
    monkeypatch.setenv("TRADEWIND_SECRET_BROKER_KEY", "three")
    assert (await source.resolve(config))[0] == {"key": "three"}


@pytest.mark.parametrize("name", ["absent", "../outside", "..", "folder", "."])
async def test_only_files_directly_in_secrets_directory_are_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").write_text("outside", encoding="utf-8")
    (tmp_path / "secrets" / "folder").mkdir(parents=True)
    monkeypatch.setenv("TRADEWIND_SECRETS_DIR", str(tmp_path / "secrets"))
    with pytest.raises(NodeFault, match="nor a file of that name in") as caught:
        await SecretResolver().resolve({"key": reference(name)})
    assert caught.value.code == "SECRET_MISSING"


@pytest.mark.parametrize(("value", "refused"), [("correct-horse", True), ('pässword"1\n', True), ("short", False)])
async def test_output_that_contains_secret_fails_node(value: str, refused: bool) -> None:
    @node("leak")
    async def leak(key: str) -> list[str]:
        return [f"Bearer {key}"]

    run = await run_node(leak, config={"key": reference("broker")}, secrets={"broker": value})

    if not refused:
        assert run.output == ["Bearer short"]
        return
    assert run.error is not None
    assert (run.error.code, run.error.non_retryable) == ("INVALID_OUTPUT", True)
    assert "output" in run.error.message
    assert value not in repr(run)


@pytest.mark.parametrize("place", ["form", "signal"])
async def test_wait_that_contains_secret_fails_node(place: str) -> None:
    @node("asks")
    async def asks(key: str) -> Wait:
        return Wait(form={"title": f"use {key}"}) if place == "form" else Wait(key)

    run = await run_node(asks, config={"key": reference("broker")}, secrets={"broker": "correct-horse"})

    assert run.wait is None
    assert run.error is not None
    assert run.error.message.startswith(f"the {place} of the Wait contains the value of the secret broker, but waits")


async def test_output_is_searched_for_secrets_before_encoding(caplog: pytest.LogCaptureFixture) -> None:
    @node("leak")
    async def leak(key: str) -> str:
        return key

    async def vault(name: str) -> str:
        return "correct-horse"

    async with Bench([leak], secrets=vault, codec=AesGcm({"2026": bytes(32)})) as bench:
        run = await bench.run(bench.assignment("leak", config_json='{"key": {"$secret": "broker"}}'))

    assert run.outputs == {}
    assert run.error is not None
    assert run.error.code == "INVALID_OUTPUT"
    assert "correct-horse" not in run.error.message + caplog.text


def test_secret_contained_in_output_is_named() -> None:
    redact = Redactor({"short": "horse", "long": "correct-horse", "other": "battery staple"})

    refuse_secrets(redact, [("text", '"horse"')])
    for text, name in (('"a correct-horse"', "long"), ('"?key=battery+staple"', "other")):
        with pytest.raises(NodeFault, match=f"output text contains the value of the secret {name},"):
            refuse_secrets(redact, [("first", "1"), ("text", text)])
