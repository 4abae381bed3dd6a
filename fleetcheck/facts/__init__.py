"""Evidence made typed.

In: :class:`fleetcheck.agent.evidence.Evidence`. Out: :class:`fleetcheck.facts.records.HostFacts`.
Parsers never raise on what a host says: what cannot be read becomes ``unknown`` or ``unreadable``.
"""
