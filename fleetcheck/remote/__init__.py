"""Reach a host and bring back what its agent gathered.

In: :class:`fleetcheck.inventory.model.Target` records. Out: :class:`fleetcheck.agent.evidence.Evidence`,
one a target, in the order in which the looks end. No look hangs, and none trusts a stranger.
"""
