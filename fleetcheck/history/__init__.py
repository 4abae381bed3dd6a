"""What was seen in earlier runs, and what changed since.

In: runs, as :mod:`fleetcheck.run` records them. Out: one SQLite file that holds their non-volatile facts and
findings, each stored once; the runs and hosts read back from it; and changes, as data and as text.
"""
