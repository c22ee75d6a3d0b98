"""The `ottla` command: a module for each command, which is imported when the command is run.

Imports inside functions keep start-up short: rich takes 60 ms and is imported where a table or a
bar is drawn. Optional dependencies (kopf, PySpark) are imported by the command that needs them.
"""
