"""The embedded fleet: real SSH servers on loopback, each host a folder.

In: an empty folder. Out: an inventory and settings for the very code that audits production.
"""
