"""All runs in memory, as columns: sorted, filtered and paged without asking the store again.

Loads numpy, so nothing imports this room before a table is asked for.
"""
