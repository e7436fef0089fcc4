"""A Python that lets an environment be begun, and not be built."""

# Tells its version and answers what the playbook asks it first, and fails at what comes next: the virtual environment.
BROKEN_PYTHON = """#!/bin/sh
[ "$1" = -VV ] && echo "Python 3.11.0 (broken)" && exit 0
[ "$1" = -c ] && exec python3 "$@"
echo "no space left" >&2
exit 7
"""
