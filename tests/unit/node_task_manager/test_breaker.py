"""How long something that fails is left alone."""

from tradewind.node_task_manager.use_cases.breaker import Breaker


def test_breaker_doubles_its_pause_up_to_30_s() -> None:
    now = 100.0
    breaker = Breaker(lambda: now)
    for pause in (1, 2, 4, 8, 16, 30, 30):
        assert not breaker.is_open
        breaker.failed(ConnectionError("away"))
        breaker.failed(ConnectionError("away"))
        now += pause - 0.01
        assert breaker.is_open
        now += 0.02
    breaker.succeeded()
    breaker.failed(ConnectionError("away"))
    now += 1.01
    assert not breaker.is_open
