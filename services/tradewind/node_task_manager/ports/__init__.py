"""What the node task manager asks of its store and of its neighbours.

Each store answers for one shard. When the store cannot be reached, the adapter's own exceptions are raised; an error
never looks like an answer. Methods that change node tasks may take `vacancies`: in the same step, ready node tasks go
to them, users in turn and oldest first; the effects list them.
"""
