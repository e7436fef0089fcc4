"""Hooks of the MkDocs build, in a folder of their own because MkDocs puts it at the front of `sys.path`."""
