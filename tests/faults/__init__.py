"""The fault matrix: what may befall a run, carried out against real processes, and what has to come of it.

A row of the matrix arranges a run, breaks something, and says what is to be seen. Five things are held in every row: a
true exit status within bounded time, one clear line on what happened, the state of the machines as it was before, data
that is home or recoverable, and no process left.
"""
