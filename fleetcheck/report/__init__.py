"""Show a run.

In: :class:`fleetcheck.run.Run`. Out: text in one of the formats; one module a format.
"""
