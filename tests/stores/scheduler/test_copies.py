"""Stores take and return copies: changing them changes nothing on record."""

from contextlib import suppress
from typing import cast

from msgspec import structs

from tests.stores.scheduler.bench import Bench
from tradewind.scheduler.domain.chain_state import ComponentEnd, component_field


async def test_changing_a_written_or_loaded_state_does_not_change_the_record(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    written = {"0": ComponentEnd(completed=1)}
    result = await bench.write(structs.replace(state, components=written), {component_field("0")})
    assert result.ok
    written["0"] = ComponentEnd(failed=9)
    written["1"] = ComponentEnd(failed=9)
    loaded = cast(dict[str, ComponentEnd], (await bench.state(state.name)).components)
    assert loaded == {"0": ComponentEnd(completed=1)}
    # An object that cannot be changed at all is as good as a copy.
    with suppress(TypeError):
        loaded["1"] = ComponentEnd(failed=9)
    assert (await bench.state(state.name)).components == {"0": ComponentEnd(completed=1)}
