"""Lua lets a function have 200 local variables, and all files of a folder that scripts include share one function."""

import pytest
from redis.exceptions import ResponseError

from tests.house.project import parts
from tests.servers import RedisServer
from tradewind.server.redis.library import library

ROOM = 40
FULL = f"""\
fewer than {ROOM} local variables are left for the Lua files of {{folder}} that scripts include ({{error}}).
Move what only one file uses into a `do ... end` block of that file, constants into the functions that use them,
and functions of one noun into the table of that noun."""


@pytest.mark.parametrize("part", [part for part, folder in parts().items() if (folder / "stores" / "lua").is_dir()])
async def test_included_files_leave_room_for_local_variables(part: str, embedded: RedisServer) -> None:
    scripts = library(f"{part}.stores")
    # The first locals of the function count to its end.
    more = ", ".join(f"spare_{number}" for number in range(ROOM))
    text = scripts.text("room").replace("local function make()\n", f"local function make()\nlocal {more}\n")
    assert more in text
    try:
        loaded = await embedded.on_node(embedded.nodes[0], "FUNCTION", "LOAD", text)
    except ResponseError as error:
        pytest.fail(FULL.format(folder=f"{part}.stores", error=error))
    await embedded.on_node(embedded.nodes[0], "FUNCTION", "DELETE", loaded.decode())
