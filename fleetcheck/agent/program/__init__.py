"""The program that runs on the host: Python 3.8 to 3.14, standard library alone, joined into one text by bundle.

Each module gathers one kind of thing and never judges; a failure becomes a value.
"""
