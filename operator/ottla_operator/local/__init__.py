"""This machine as the platform, for `ottla up`: brokers and pipelines are processes, reports go to
the terminal.
"""
