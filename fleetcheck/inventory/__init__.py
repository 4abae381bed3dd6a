"""Who to look at.

In: inventory files, names, patterns. Out: :class:`fleetcheck.inventory.model.Target` records, resolved.
Errors: :class:`fleetcheck.errors.InputError` holding every problem with its file and line.
"""
