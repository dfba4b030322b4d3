"""Settings: from the environment, checked, and printed as a table."""

import io

import pydantic
import pytest
from pydantic import Field
from rich.console import Console

from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.server.settings import (
    CommonSettings,
    Settings,
    SettingsError,
    load_settings,
    print_settings,
    settings_table,
)
from tradewind.standalone.settings import StandaloneSettings


class Scheduler(CommonSettings):
    port: int = Field(7701, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    registry: str = Field(description="Address of the registry.")


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_REGISTRY", "localhost:7702")
    monkeypatch.setenv("TRADEWIND_STORE_PASSWORD", "secret")
    monkeypatch.setenv("TRADEWIND_LOG_LEVEL", "")
    settings = load_settings(Scheduler)
    assert (settings.port, settings.registry, settings.log_level) == (7701, "localhost:7702", "info")
    assert settings.store_password is not None
    assert settings.store_password.get_secret_value() == "secret"
    assert "secret" not in repr(settings)


def test_override_takes_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_PORT", "1")
    assert load_settings(CommonSettings, port=2).port == 2


def test_every_invalid_variable_is_named_at_once_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("TRADEWIND_LOG_FORMAT", "xml")
    with pytest.raises(SettingsError) as caught:
        load_settings(Scheduler)
    variables = {line.partition(":")[0] for line in str(caught.value).splitlines()}
    assert variables == {"TRADEWIND_LOG_FORMAT", "TRADEWIND_PORT", "TRADEWIND_REGISTRY"}
    assert "tcp://" not in str(caught.value)


@pytest.mark.parametrize("settings", [CommonSettings, StandaloneSettings])
def test_messages_larger_than_grpc_can_count_are_refused(
    monkeypatch: pytest.MonkeyPatch, settings: type[Settings]
) -> None:
    monkeypatch.setenv("TRADEWIND_MAX_MESSAGE_BYTES", "2147483647")
    with pytest.raises(SettingsError, match=r"TRADEWIND_MAX_MESSAGE_BYTES: .*1073741824"):
        load_settings(settings)


def test_otlp_endpoint_over_http_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_OTLP_ENDPOINT", "https://collector:4318/v1/traces")
    with pytest.raises(
        SettingsError, match="TRADEWIND_OTLP_ENDPOINT: traces go over gRPC, to http://host:4317 without"
    ):
        load_settings(CommonSettings)
    for endpoint in ("http://collector:4317/", "https://collector.example", "collector:4317", "unix:/run/otel.sock"):
        monkeypatch.setenv("TRADEWIND_OTLP_ENDPOINT", endpoint)
        assert load_settings(CommonSettings).otlp_endpoint == endpoint


@pytest.mark.parametrize("endpoint", [" ", "collector", "http://", "http://collector:99999", "ftp://collector:4317"])
def test_otlp_endpoint_that_is_no_address_is_refused(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_OTLP_ENDPOINT", endpoint)
    with pytest.raises(SettingsError, match=r"TRADEWIND_OTLP_ENDPOINT: .* is no endpoint for traces"):
        load_settings(CommonSettings)


@pytest.mark.parametrize("address", ["http://access:7705", "access", ":7705"])
def test_address_without_host_or_port_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("TRADEWIND_ACCESS_ADDRESS", address)
    with pytest.raises(SettingsError, match=r"TRADEWIND_ACCESS_ADDRESS: .* give host:port, such as localhost:7700"):
        load_settings(CommonSettings)


def test_registry_address_of_node_task_manager_may_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_REGISTRY_ADDRESS", "none")
    assert load_settings(NodeTaskManagerSettings).registry_address == "none"
    monkeypatch.setenv("TRADEWIND_REGISTRY_ADDRESS", "nobody")
    with pytest.raises(SettingsError, match="TRADEWIND_REGISTRY_ADDRESS"):
        load_settings(NodeTaskManagerSettings)


def test_settings_are_immutable() -> None:
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        load_settings(CommonSettings).port = 1  # type: ignore[misc]  # settings must be immutable


def test_a_setting_without_a_description_is_refused() -> None:
    with pytest.raises(TypeError, match="Undescribed without a description: what"):

        class Undescribed(Settings):
            what: int = 1


def test_settings_table_shows_variable_default_and_description() -> None:
    rows = {name: (default, meaning) for name, default, meaning in settings_table(Scheduler)}
    assert rows["TRADEWIND_PORT"] == ("7701", "Port to listen on; 0 picks a free one.")
    assert rows["TRADEWIND_REGISTRY"] == ("(required)", "Address of the registry.")
    assert rows["TRADEWIND_OTLP_ENDPOINT"][0] == ""
    output = io.StringIO()
    print_settings(Scheduler, Console(file=output, width=120, force_terminal=True))
    for name in rows:
        assert name in output.getvalue()


def test_piped_settings_table_has_one_line_for_each_setting() -> None:
    output = io.StringIO()
    print_settings(Scheduler, Console(file=output, width=80))
    lines = output.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == [name for name, _, _ in settings_table(Scheduler)]
    assert next(line for line in lines if "TRADEWIND_STORE_URL" in line).endswith("or redis+cluster://h1,h2.")
