"""What the node task manager asks of its store and of its neighbours.

Each store answers for one shard. Store errors (the store cannot be reached) come as the adapter's own exceptions and
never look like an answer. Every method that changes node tasks takes `vacancies`: ready node tasks go to them in the
same step, users in turn and oldest first, and are found in the effects.
"""
