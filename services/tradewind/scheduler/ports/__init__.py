"""What the scheduler needs from stores and from other services, one Protocol for each noun.

Every method of a store lets the store's errors through when it cannot be reached: an outage is never an answer. Methods
that take `epochs` act for the owner of the partitions named in it. If somebody else has since taken a partition with a
higher epoch, whatever concerns that partition is not done, and is answered `overtaken`.
"""
