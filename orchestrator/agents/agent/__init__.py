"""The agent: one process on a node that starts, watches and ends the processes of a run there.

Its modules arrive as one text over its own channel and run from memory: standard library only, Python 3.8 or later,
nothing imported from elsewhere. When its input ends, or nothing comes for too long, whoever asked is gone: it ends
everything it started, takes back every change and exits.
"""
