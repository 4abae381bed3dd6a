"""Judge facts.

In: :class:`fleetcheck.facts.records.HostFacts` and expectations. Out: :class:`fleetcheck.rules.finding.Finding`.
"""
