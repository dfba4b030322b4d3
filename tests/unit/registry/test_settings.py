"""The registry's settings, and what it derives from them."""

import pytest

from tradewind.registry.app import Registry
from tradewind.registry.settings import RegistrySettings
from tradewind.server.settings import SettingsError, load_settings


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings(RegistrySettings).port == 7702
    monkeypatch.setenv("TRADEWIND_REGISTRY_HEARTBEAT_SECONDS", "5")
    monkeypatch.setenv("TRADEWIND_REGISTRY_TIME_TO_LIVE_SECONDS", "15")
    values = load_settings(RegistrySettings)
    assert (values.registry_heartbeat_seconds, values.registry_time_to_live_seconds) == (5, 15)
    monkeypatch.setenv("TRADEWIND_REGISTRY_SWEEP_SECONDS", "often")
    with pytest.raises(SettingsError, match=r"TRADEWIND_REGISTRY_SWEEP_SECONDS"):
        load_settings(RegistrySettings)


def test_time_to_live_below_three_heartbeat_intervals_is_refused() -> None:
    with pytest.raises(ValueError, match=r"TRADEWIND_REGISTRY_TIME_TO_LIVE_SECONDS: .* three heartbeat intervals"):
        Registry(load_settings(RegistrySettings, registry_heartbeat_seconds=30))
    # In floating point this is no whole number of thousandths, but it is exactly three heartbeats all the same.
    Registry(load_settings(RegistrySettings, registry_heartbeat_seconds=0.67, registry_time_to_live_seconds=2.01))
