"""What the scheduler needs of stores and of other services, one Protocol for each noun.

Every method of a store lets the store's errors through when it cannot be reached: an outage is never an answer. Methods
that take `epochs` act for the owner of the partitions named in it: what concerns one that somebody with a higher epoch
owns by now is answered `overtaken` and not done.
"""
