"""Reading chain states from Redis."""

from types import SimpleNamespace
from typing import Any

from tests.turns import counted_turns
from tests.unit.scheduler.test_update_state import FACTS
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.keys import Keys
from tradewind.scheduler.stores.redis.run_codec import facts_text_of
from tradewind.scheduler.stores.redis.states import RedisStates


async def test_runs_of_many_components_are_converted_with_turns_for_others() -> None:
    texts = {"run_id": "r", "start_time": "1", "facts": facts_text_of(FACTS)}
    texts |= {f"component:{at}": "1,0,0,0,1" for at in range(1000)}
    record = [part.encode() for field in texts.items() for part in field]

    async def call(*_: object) -> list[bytes]:
        return record

    scripted: Any = SimpleNamespace(client=SimpleNamespace(call=call), keys=Keys("p"))
    states = RedisStates(scripted, lambda: False, 0)
    with counted_turns() as longest:
        loaded = await states.load_many([RunName("f", cycle) for cycle in range(50)])
    assert all(state is not None and len(state.components) == 1000 for state in loaded)
    assert longest.calls < 40_000, "each of them takes 10 000"
