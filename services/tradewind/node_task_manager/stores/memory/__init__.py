"""A shard in memory: the executable specification of the store. Obvious rather than fast."""

from tradewind.node_task_manager.stores.memory.shard import MemoryShard

__all__ = ["MemoryShard"]
